"""The report of a run, or of several beside each other: one page for people.

found = robustda.report("runs/a")                  # or several: robustda.report("runs/a", "runs/b")
found.headline                                     # sentences, the most important one first
found.save("report.html")
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from robustda.data.domain import Domain
from robustda.errors import ConfigError
from robustda.files import write_whole
from robustda.report.run_compare import comparison_page
from robustda.report.run_map import MOST_POINTS, TargetMap, map_target
from robustda.report.run_page import run_page
from robustda.report.run_read import RunRecord, read_runs
from robustda.report.run_wording import compared, told

__all__ = ["RunReport", "report"]


@dataclass(frozen=True, eq=False)
class RunReport:
    """What is to be told about some runs."""

    runs: list[RunRecord]
    map: TargetMap | str
    """The t-SNE of the target, or why there is none."""

    @cached_property
    def headline(self) -> list[str]:
        """What came out, in sentences."""
        return told(self.runs[0]) if len(self.runs) == 1 else compared(self.runs)

    @property
    def html(self) -> str:
        """The page."""
        if len(self.runs) > 1:
            return comparison_page(self.runs, self.headline)
        return run_page(self.runs[0], self.headline, self.map)

    @property
    def file_name(self) -> str:
        """What the page is called where nobody has named it."""
        return "comparison.html" if len(self.runs) > 1 else "report.html"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page; its path comes back. In a folder it is called `file_name`; other names end in .html."""
        path = self._page(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, self.html.encode())
        except OSError as error:
            raise ConfigError(f"cannot write {path} ({error.strerror}): choose another place") from error
        return path

    def _page(self, path: str | os.PathLike[str]) -> Path:
        page = Path(path)
        if page.is_dir() or os.fspath(path).endswith(("/", os.sep)):
            return page / self.file_name
        if page.suffix.lower() in (".html", ".htm"):
            return page
        return page.with_name(f"{page.name}.html")  # a browser shows another kind of file as text


def report(
    *runs: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    target: Domain | str | os.PathLike[str] | None = None,
    points: int = MOST_POINTS,
    device: str = "auto",
    cache_dir: str | None = None,
) -> RunReport:
    """Report on a run folder, or compare several.

    The map of the target (t-SNE of the network's features of up to `points` examples; 0 for none) needs the target's
    examples: they are read again from where the run had them, or from `target`. With `out`, the page is written
    there, as `RunReport.save` has it.
    """
    if not runs:
        raise ConfigError("there is no run to report on: give the --out folder of a fit")
    if points < 0:
        raise ConfigError(f"points is {points}: give a number of at least 0")
    found = read_runs(runs)
    about: TargetMap | str = "Several runs are compared."
    if len(found) == 1:
        decoding: dict[str, Any] = {"cache_dir": cache_dir}
        about = map_target(found[0], target, points=points, device=device, **decoding)
    made = RunReport(found, about)
    if out is not None:
        made.save(out)
    return made
