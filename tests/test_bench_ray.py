"""The grid on real Ray clusters: two nodes, one of whose workers is killed, and four that are lost one by one."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from robustda.bench.cells import Cell, run_cell
from robustda.bench.grid import run_grid
from robustda.bench.results import collect
from test_bench import cells, few, root

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'robustda[ray]'")

__all__ = ["root"]  # the fixture


SMALL = {"object_store_memory": 80 << 20, "include_dashboard": False}


@contextlib.contextmanager
def ray_cluster(nodes: int, *, at_head: int) -> Iterator[Any]:
    """A cluster in this machine: a head with so many cores, and nodes of one core each."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": at_head, **SMALL})
    try:
        for _ in range(nodes):
            made.add_node(num_cpus=1, **SMALL)
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def cluster() -> Iterator[None]:
    with ray_cluster(1, at_head=1):
        yield


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


class Placed:
    """`run_cell`, which leaves the node it works on, and afterwards when the run was finished."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def __call__(self, cell: Cell, out: Path, root: Path, **how: object) -> None:
        node = ray.get_runtime_context().get_node_id()
        begun = self.notes / f"{cell.key}.{os.getpid()}.begun"
        begun.write_text(node)
        time.sleep(0.2)
        run_cell(cell, out, root, **how)  # type: ignore[arg-type]
        finished = (out / "cells" / cell.key / "done").stat().st_mtime_ns
        begun.with_suffix(".ended").write_text(str(finished))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_hundred_cells_on_four_nodes_survive_the_loss_of_nodes(root: Path, tmp_path: Path) -> None:
    placed = few(seeds=list(range(25)))
    notes = tmp_path / "notes"
    notes.mkdir()
    rng = random.Random(0)
    lost: list[str] = []

    def busy() -> list[str]:
        """The nodes that have begun a cell and not ended it."""
        begun = [path for path in notes.glob("*.begun") if not path.with_suffix(".ended").exists()]
        return sorted({path.read_text() for path in begun} - {"", *lost})

    # Ray starts nodes from the main thread only, so it is the grid that has another one.
    with ray_cluster(4, at_head=0) as nodes, ThreadPoolExecutor(1) as beside:
        how = {"engine": "ray", "jobs": 4, "device": "cpu", "progress": False, "run": Placed(notes)}
        grid = beside.submit(run_grid, cells(placed), tmp_path / "out", root, **how)  # type: ignore[arg-type]
        for moment in sorted(rng.sample(range(8, 85), 4)):
            while not grid.done() and (len(list(notes.glob("*.ended"))) < moment or not busy()):
                time.sleep(0.02)
            lost.append(rng.choice(busy()))
            node = next(node for node in nodes.worker_nodes if node.node_id == lost[-1])
            nodes.remove_node(node, allow_graceful=False)
            nodes.add_node(wait=False, num_cpus=1, **SMALL)
        outcome = grid.result()
    assert (outcome.done, outcome.failed, outcome.left) == (100, 0, 0)
    assert len(lost) == len(set(lost)) == 4
    finished = {(note.name.split(".")[0], note.read_text()) for note in notes.glob("*.ended")}
    assert len(finished) == len({key for key, _ in finished}) == 100, "each cell is done, and none twice"
    assert len(list(notes.glob("*.begun"))) > 100, "what was on a lost node was begun again"
    assert len(collect(cells(placed), tmp_path / "out")) == 100
    assert not list((tmp_path / "out").glob("cells/*/error.txt"))
