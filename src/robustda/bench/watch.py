"""What a grid shows while it runs: on a terminal the table as it fills, elsewhere a line for each cell that ends."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from robustda.bench.cells import Cell
from robustda.bench.results import accuracy_of
from robustda.data.catalog import short_task
from robustda.errors import RunError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["Watch"]

_WIDEST = 8  # columns that a terminal has room for


class Watch:
    """Follows a grid of cells, some of which are done already."""

    def __init__(
        self,
        cells: Sequence[Cell],
        done: Sequence[Cell],
        out: Path,
        *,
        show: bool = True,
        console: Console | None = None,
    ) -> None:
        from rich.console import Console

        self._cells, self._out, self._show = cells, out, show
        self._outcomes = {cell.key: self._outcome(cell) for cell in done}
        self._before = len(done)
        self._began = time.monotonic()
        self._console = console or Console()
        self._live = self._console.is_terminal and show

    def __enter__(self) -> Self:
        if self._live:
            from rich.live import Live

            self._screen = Live(self.table(), console=self._console, auto_refresh=False)
            self._screen.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._screen.stop()

    def ended(self, cell: Cell) -> None:
        """A cell is done, or has failed."""
        self._outcomes[cell.key] = self._outcome(cell)
        if self._live:
            self._screen.update(self.table(), refresh=True)
        elif self._show:
            value = self._outcomes[cell.key]
            print(
                f"{len(self._outcomes):>5}/{len(self._cells)}  {'failed' if value is None else f'{value:.1f}':>6}  "
                f"{cell.method:<12} {cell.task:<16} {cell.noise} {cell.rate:g} seed {cell.seed}   {self._left()}",
                flush=True,
            )

    def table(self) -> Table:
        """The cells so far: a line for each method and setting, a column for each task and noise."""
        from rich.table import Table

        rows = list(dict.fromkeys(_row(cell) for cell in self._cells))
        whole = len({_column(cell) for cell in self._cells}) <= _WIDEST
        columns = list(dict.fromkeys(_column(cell, whole) for cell in self._cells))
        table = Table(title=f"{len(self._outcomes)} of {len(self._cells)} cells, {self._left()}", title_justify="left")
        table.add_column("method", no_wrap=True)
        for column in columns:
            table.add_column(column, justify="right")
        for row in rows:
            line = [row]
            for column in columns:
                line.append(self._summary([c for c in self._cells if (_row(c), _column(c, whole)) == (row, column)]))
            table.add_row(*line)
        return table

    def _summary(self, cells: list[Cell]) -> str:
        known = [self._outcomes[cell.key] for cell in cells if cell.key in self._outcomes]
        good = [value for value in known if value is not None]
        if not known:
            return "·" if cells else ""
        text = f"{sum(good) / len(good):.1f}" if good else ""
        if len(good) < len(known):
            text += f" {len(known) - len(good)} failed"
        return text if len(known) == len(cells) else f"{text} ({len(known)}/{len(cells)})"

    def _outcome(self, cell: Cell) -> float | None:
        try:
            return 100 * accuracy_of(cell, self._out)
        except RunError:
            return None

    def _left(self) -> str:
        new = len(self._outcomes) - self._before
        if not new:
            return "just begun" if len(self._outcomes) < len(self._cells) else "all done"
        left = (time.monotonic() - self._began) / new * (len(self._cells) - len(self._outcomes)) / 60
        return f"about {left:.0f} min left"


def _row(cell: Cell) -> str:
    settings = json.dumps(cell.settings, sort_keys=True).strip("{}").replace('"', "")
    return f"{cell.method} {settings}".strip()


def _column(cell: Cell, with_task: bool = True) -> str:
    """A task under a noise; without the task, for want of room, all of them."""
    noise = f"{cell.noise} {cell.rate:g}"
    return f"{short_task(cell.source, cell.target)}\n{noise}" if with_task else noise
