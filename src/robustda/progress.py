"""Progress bars: on a terminal, and silent elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Bar"]


class Bar:
    """One bar for one phase: steps done, rate, time left, loss."""

    def __init__(self, name: str, total: int, start: int = 0, *, unit: str = "steps", show: bool = True) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._start, self._began, self._unit = start, time.monotonic(), unit
        if show and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description:>8}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=Console(stderr=True),
            )
            self._task = self._progress.add_task(name, total=total, completed=start, note="")

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, done: int, loss: float | None = None, accuracy: float | None = None) -> None:
        """Show where it stands."""
        if self._progress is None or self._task is None:
            return
        rate = (done - self._start) / max(1e-9, time.monotonic() - self._began)
        note = f"{rate:,.0f} {self._unit}/s"
        note += f"  loss {loss:.3f}" if loss is not None else ""
        note += f"  target {accuracy:.1%}" if accuracy is not None else ""
        self._progress.update(self._task, completed=done, note=note)
