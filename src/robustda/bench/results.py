"""What came out of a grid: one tidy table, a line for each cell that is done."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustda.bench.cells import Cell
from robustda.errors import RunError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "accuracy_of", "collect", "write_results"]

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


def write_results(table: pd.DataFrame, path: Path) -> None:
    """As .csv or .parquet. Times and hardware apart, the same cells give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    table.to_parquet(temporary, index=False) if path.suffix == ".parquet" else table.to_csv(temporary, index=False)
    temporary.replace(path)


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
        "accuracy_best": _best(folder, summary["target_accuracy"]),
        **{name: summary[name] for name in ("noise_rate", "kept_share", "seconds")},
    }


def _best(folder: Path, final: float) -> float:
    """The best of all evaluations on the target's labels: an oracle's figure, for comparison only."""
    best = final
    for line in (folder / "metrics.csv").read_text().splitlines():
        if ",target_accuracy," in line:
            best = max(best, float(line.rsplit(",", 1)[1]))
    return best
