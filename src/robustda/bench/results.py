"""What came out of a grid: one tidy table, a line for each cell that is done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustda.bench.cells import Cell
from robustda.errors import RunError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLUMNS",
    "about_cell",
    "accuracy_of",
    "collect",
    "lookup",
    "merge",
    "read_results",
    "read_table",
    "write_results",
]

COLUMNS = (
    "method",
    "settings",
    "source",
    "target",
    "noise",
    "rate",
    "draw",
    "seed",
    "protocol",
    "steps",
    "accuracy_final",
    "accuracy_im",
    "accuracy_snd",
    "accuracy_bnm",
    "accuracy_dev",
    "accuracy_best",
    "noise_rate",
    "kept_share",
    "seconds",
    "hardware",
    "version",
)


def accuracy_of(cell: Cell, out: Path) -> float:
    """Final-iteration accuracy of a cell that is done."""
    try:
        return float(json.loads((out / "cells" / cell.key / "summary.json").read_text())["target_accuracy"])
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"the cell {cell.key} is not done") from error


def collect(cells: Iterable[Cell], out: Path) -> pd.DataFrame:
    """The results of these cells, as far as they are done, in the cells' order, each once."""
    import pandas as pd

    lines = [_line(cell, out) for cell in {c.key: c for c in cells}.values()]
    return pd.DataFrame([line for line in lines if line], columns=list(COLUMNS))


def lookup(table: pd.DataFrame, cells: Iterable[Cell]) -> list[dict[str, Any] | None]:
    """The line of each cell, None where there is none: so a table can be printed from a results file alone."""
    lines = {_identity(line): line for line in _records(table)}
    return [lines.get(_identity(about_cell(cell))) for cell in cells]


def merge(before: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Both, the new lines in place of old ones of the same cells; sorted, so that the order of work does not show."""
    import pandas as pd

    lines = {_identity(line): line for line in [*_records(before), *_records(new)]}
    return pd.DataFrame([lines[key] for key in sorted(lines)], columns=list(COLUMNS))


def read_results(path: Path) -> pd.DataFrame:
    """What `write_results` wrote; an empty table where there is no such file."""
    table = read_table(path)
    return table if len(table.columns) else table.reindex(columns=list(COLUMNS))


def read_table(path: Path) -> pd.DataFrame:
    """A table of a grid; an empty one where there is no such file."""
    import pandas as pd

    if not path.exists():
        return pd.DataFrame()
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def write_results(table: pd.DataFrame, path: Path) -> None:
    """As .csv or .parquet. Times and hardware apart, the same cells give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    table.to_parquet(temporary, index=False) if path.suffix == ".parquet" else table.to_csv(temporary, index=False)
    temporary.replace(path)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in line.items()} for line in table.to_dict("records")]


def about_cell(cell: Cell) -> dict[str, Any]:
    """What a cell is, as a line of a table."""
    about = asdict(cell)
    return about | {"settings": json.dumps(about["settings"], sort_keys=True)}


def _identity(line: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("method", "settings", "source", "target", "noise", "draw", "protocol")
    numbers = ("rate", "seed", "steps")
    return tuple(str(line[name]) for name in names) + tuple(f"{float(line[name]):g}" for name in numbers)


def _line(cell: Cell, out: Path) -> dict[str, Any] | None:
    folder = out / "cells" / cell.key
    if not (folder / "cell.json").exists():
        return None
    about = json.loads((folder / "cell.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())
    return {
        **{name: about[name] for name in COLUMNS if name in about},
        "settings": json.dumps(about["settings"], sort_keys=True),
        "accuracy_final": summary["target_accuracy"],
        **_by_step(folder, summary["target_accuracy"]),
        **{name: summary[name] for name in ("noise_rate", "kept_share", "seconds")},
    }


def _by_step(folder: Path, final: float) -> dict[str, float]:
    """Accuracy at the evaluation that each label-free criterion likes best, and the best of all: an oracle's figure.

    A method without steps has one evaluation, its end. A criterion that was not asked has chosen nothing.
    """
    series: dict[str, dict[int, float]] = {}
    for line in (folder / "metrics.csv").read_text().splitlines()[1:]:
        _, step, metric, value = line.split(",")
        series.setdefault(metric, {})[int(step)] = float(value)
    accuracy = series.get("target_accuracy", {})
    found = {"accuracy_best": max([final, *accuracy.values()])}
    asked = any(metric.startswith("select_") for metric in series)
    for name in ("im", "snd", "bnm", "dev"):
        liked = series.get(f"select_{name}", {})
        otherwise = float("nan") if asked else final
        found[f"accuracy_{name}"] = accuracy[max(liked, key=lambda step: liked[step])] if liked else otherwise
    return found
