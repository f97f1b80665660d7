"""The grid on a real Ray cluster of two nodes, one of whose workers is killed at work."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from robustda.bench.cells import Cell, run_cell
from robustda.bench.grid import run_grid
from robustda.bench.results import collect
from test_bench import cells, few, root

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'robustda[ray]'")

__all__ = ["root"]  # the fixture


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()
        nodes.shutdown()


class Noted:
    """`run_cell`, which leaves its process id and counts the cells that it finished."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def __call__(self, cell: Cell, out: Path, root: Path, **how: object) -> None:
        (self.notes / f"{cell.key}.{os.getpid()}.begun").touch()
        time.sleep(0.5)
        run_cell(cell, out, root, **how)  # type: ignore[arg-type]
        (self.notes / f"{cell.key}.{os.getpid()}.ended").touch()


@pytest.mark.filterwarnings("ignore")
def test_a_grid_on_two_nodes_survives_the_death_of_a_worker(cluster: None, root: Path, tmp_path: Path) -> None:
    placed = few(seeds=[0, 1])
    notes = tmp_path / "notes"
    notes.mkdir()

    def kill_the_third() -> None:
        while len(begun := sorted(notes.glob("*.begun"), key=lambda note: note.stat().st_mtime_ns)) < 3:
            time.sleep(0.05)
        os.kill(int(begun[2].name.split(".")[1]), signal.SIGKILL)

    killer = threading.Thread(target=kill_the_third)
    killer.start()
    outcome = run_grid(
        cells(placed), tmp_path / "out", root, engine="ray", jobs=2, device="cpu", progress=False, run=Noted(notes)
    )
    killer.join()
    assert (outcome.done, outcome.failed, outcome.left) == (8, 0, 0)
    ended = [note.name.split(".")[0] for note in notes.glob("*.ended")]
    assert len(ended) == len(set(ended)) == 8, "each cell is done, and none twice"
    assert len(list(notes.glob("*.begun"))) == 9, "one was begun again"
    assert len(collect(cells(placed), tmp_path / "out")) == 8
