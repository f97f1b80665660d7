"""A threaded map that keeps the order of its items and a bounded number of results, with a progress bar."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_order"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int | None = None,
    describe: str | None = None,
) -> Generator[Result, None, None]:
    """Results of a threaded map in the order of the items, never more than a few ahead of who takes them."""
    threads = workers or min(
        32, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    executor = ThreadPoolExecutor(threads)
    running: deque[Future[Result]] = deque()
    try:
        with _progress_bar(describe, len(items)) as advance:
            for item in items:
                if len(running) >= 4 * threads:
                    yield running.popleft().result()
                    advance()
                running.append(executor.submit(function, item))
            while running:
                yield running.popleft().result()
                advance()
    finally:
        executor.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _progress_bar(describe: str | None, total: int) -> Iterator[Callable[[], None]]:
    if describe is None or not total or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(describe, total=total)
        yield lambda: bar.advance(task)
