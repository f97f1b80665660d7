"""Running many cells so that no work is lost: finished ones are skipped, stopped ones resume, failed ones are noted.

Each cell is a run folder of its own, so the folder is all the state there is. The grid may be killed at any moment and
started again, by the same command or by another that shares some of its cells.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from robustda.bench.cells import Cell, run_cell
from robustda.bench.data import prepare, prepare_clean
from robustda.bench.watch import Watch
from robustda.errors import ConfigError

__all__ = ["Engine", "Outcome", "run_grid", "state_of"]

Engine = Literal["inline", "processes", "ray"]

_ATTEMPTS = 3  # a cell whose process died under it is tried so often
_NODES = 20  # and one whose node was lost, which is hardly its own fault, on so many nodes


@dataclass
class Outcome:
    """How a grid ended: how many cells are done, how many failed, how many were not begun for lack of time."""

    done: int = 0
    failed: int = 0
    left: int = 0


def state_of(cell: Cell, out: Path) -> Literal["done", "failed", "open"]:
    """Where a cell stands, by its folder."""
    folder = out / "cells" / cell.key
    if (folder / "cell.json").exists():
        return "done"
    return "failed" if (folder / "error.txt").exists() else "open"


def run_grid(
    cells: Iterable[Cell],
    out: Path,
    root: Path,
    *,
    engine: Engine = "inline",
    jobs: int = 1,
    device: str = "auto",
    limit_minutes: float = 0,
    retry_failed: bool = True,
    progress: bool = True,
    run: Callable[..., None] = run_cell,
) -> Outcome:
    """Run every cell that is not done yet. With a limit no cell is begun after so many minutes.

    `run` does one cell: (cell, out, root, device=, threads=).
    """
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}: give a number of at least 1")
    unique = list({cell.key: cell for cell in cells}.values())
    todo = [c for c in unique if state_of(c, out) == "open" or (retry_failed and state_of(c, out) == "failed")]
    deadline = time.monotonic() + 60 * limit_minutes if limit_minutes else float("inf")
    on_features = [c for c in todo if c.protocol != "finetune"]
    for name, protocol in dict.fromkeys((name, c.protocol) for c in on_features for name in (c.source, c.target)):
        prepare_clean(root, protocol, name, out, device=device)
    noisy = ((c.protocol, c.source, c.noise, c.rate, c.draw) for c in on_features)
    for which in dict.fromkeys(noisy):
        prepare(root, *which, out, device=device)
    left = {cell.key for cell in todo}
    with Watch(unique, [cell for cell in unique if cell.key not in left], out, show=progress) as watch:
        if engine == "inline":
            for cell in todo:
                if time.monotonic() > deadline:
                    break
                run(cell, out, root, device=device)
                watch.ended(cell)
        else:
            several = _on_ray if engine == "ray" else _in_processes
            several(_Work(todo, out.resolve(), root.resolve(), jobs, device, deadline, watch, run))
    states = [state_of(cell, out) for cell in unique]
    return Outcome(states.count("done"), states.count("failed"), states.count("open"))


@dataclass(frozen=True)
class _Work:
    """What an engine that does several cells at a time is given."""

    todo: list[Cell]
    out: Path
    root: Path
    jobs: int
    device: str
    deadline: float
    watch: Watch
    run: Callable[..., None]

    @property
    def timely(self) -> bool:
        return time.monotonic() < self.deadline


def _in_processes(work: _Work) -> None:
    """Several cells at a time. A process that dies takes the pool and the cells that run beside it with it.

    A new pool goes on with what is left. The lost cells are tried again one by one, so that the one to blame shows.
    """
    threads = max(1, (os.cpu_count() or 1) // work.jobs)
    waiting, suspects = list(work.todo), list[Cell]()
    attempts = dict.fromkeys((cell.key for cell in work.todo), 0)
    while (waiting or suspects) and work.timely:
        queue, at_once = ([suspects.pop(0)], 1) if suspects else (waiting, work.jobs)
        running: dict[Future[None], Cell] = {}
        with _pool(at_once, threads) as pool:
            try:
                while (queue and work.timely) or running:
                    while queue and len(running) < at_once:
                        cell = queue[0]  # and there it stays if the pool is broken already and takes no more
                        how = {"device": work.device, "threads": threads}
                        running[pool.submit(work.run, cell, work.out, work.root, **how)] = cell
                        del queue[0]
                        attempts[cell.key] += 1
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        future.result()
                        work.watch.ended(running.pop(future))
            except BrokenProcessPool:
                lost = [cell for cell in running.values() if state_of(cell, work.out) == "open"]
                suspects += [cell for cell in lost if attempts[cell.key] < _ATTEMPTS]
                for cell in lost:
                    if attempts[cell.key] >= _ATTEMPTS:
                        _give_up(cell, work.out)


def _on_ray(work: _Work) -> None:
    """On a Ray cluster, the one that is running or one on this machine; all nodes must see the cells and the data.

    A cell whose worker or node dies is started again elsewhere, and resumes from its run folder. A worker may outlive
    its node by some seconds: `run_cell` waits for the folder that it still holds.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise ConfigError("the engine ray needs Ray: pip install 'robustda[ray]'") from error
    if not ray.is_initialized():
        try:
            ray.init(address="auto", log_to_driver=False)
        except ConnectionError:
            ray.init(num_cpus=work.jobs, log_to_driver=False, include_dashboard=False)
    resources = {"num_cpus": 1, "num_gpus": 1 / work.jobs if work.device.startswith("cuda") else 0}
    # Ray would count the loss of a node like the death of a worker: who tries again, and how often, is decided here.
    remote = ray.remote(**resources, max_retries=0)(_quietly)
    waiting, running = list(work.todo), dict[Any, Cell]()
    deaths, losses = Counter[str](), Counter[str]()
    while (waiting and work.timely) or running:
        while waiting and len(running) < work.jobs and work.timely:
            cell = waiting.pop(0)
            running[remote.remote(work.run, cell, work.out, work.root, work.device)] = cell
        ended, _ = ray.wait(list(running))
        for reference in ended:
            cell = running.pop(reference)
            try:
                ray.get(reference)
            except ray.exceptions.RayTaskError as error:  # which `run_cell` does not raise
                _give_up(cell, work.out, str(error))
            except ray.exceptions.RayError as error:
                (losses if isinstance(error, ray.exceptions.NodeDiedError) else deaths)[cell.key] += 1
                if state_of(cell, work.out) != "done" and deaths[cell.key] < _ATTEMPTS and losses[cell.key] < _NODES:
                    waiting.insert(0, cell)
                    continue
                if state_of(cell, work.out) != "done":
                    _give_up(cell, work.out, str(error) if losses[cell.key] >= _NODES else "")
            work.watch.ended(cell)


def _quietly(run: Callable[..., None], cell: Cell, out: Path, root: Path, device: str) -> None:
    """One cell in a Ray worker, with one thread, as it has one core."""
    _few_threads(1)
    run(cell, out, root, device=device, threads=1)


def _pool(jobs: int, threads: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_few_threads, initargs=(threads,))


def _few_threads(threads: int) -> None:
    """Threads of one process must not wait for those of another: they share the cores."""
    import torch

    from robustda.engine import few_threads

    torch.set_num_threads(threads)
    few_threads(threads)


def _give_up(cell: Cell, out: Path, reason: str = "") -> None:
    error = out / "cells" / cell.key / "error.txt"
    error.parent.mkdir(parents=True, exist_ok=True)
    error.write_text((reason or f"its process died {_ATTEMPTS} times, for want of memory perhaps") + "\n")
