"""How well do criteria without target labels rank what they are to choose from? Measured where labels are at hand.

Every evaluation of every run is a line of ``evaluations.csv``: the accuracy at that step, and what each criterion said.
From it come two tables: how a criterion ranks the moments of one run, and how it ranks methods at their ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustda.bench.cells import Cell
from robustda.bench.results import about_cell

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CRITERIA", "collect_evaluations", "merge_evaluations", "ranking_of_methods", "ranking_of_moments"]

CRITERIA = ("im", "snd", "bnm", "dev")
_ABOUT = ("method", "settings", "source", "target", "noise", "rate", "draw", "seed", "protocol", "steps")
_COLUMNS = (*_ABOUT, "step", "accuracy", *CRITERIA)


def collect_evaluations(cells: Iterable[Cell], out: Path) -> pd.DataFrame:
    """A line for each evaluation of each cell that is done and was judged by some of the criteria as it ran."""
    import pandas as pd

    lines: list[dict[str, Any]] = []
    for cell in {c.key: c for c in cells}.values():
        folder = out / "cells" / cell.key
        if not (folder / "cell.json").exists():
            continue
        series: dict[int, dict[str, float]] = {}
        for line in (folder / "metrics.csv").read_text().splitlines()[1:]:
            _, at, metric, value = line.split(",")
            series.setdefault(int(at), {})[metric] = float(value)
        for step, values in series.items():
            judged = {name: values[f"select_{name}"] for name in CRITERIA if f"select_{name}" in values}
            if "target_accuracy" in values and judged:
                lines.append({**about_cell(cell), "step": step, "accuracy": values["target_accuracy"], **judged})
    return pd.DataFrame(lines, columns=list(_COLUMNS))


def merge_evaluations(before: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Both, the new lines in place of old ones of the same evaluation, sorted."""
    import pandas as pd

    both = pd.concat([before, new], ignore_index=True) if len(before) else new
    keys = [*_ABOUT, "step"]
    plain = both[keys].astype(str)
    kept = both[~plain.duplicated(keep="last")]
    return kept.sort_values(keys, key=lambda column: column.astype(str), kind="stable", ignore_index=True)


def ranking_of_moments(table: pd.DataFrame) -> pd.DataFrame:
    """For each protocol and criterion, over runs with several evaluations: rank correlation with accuracy, and more.

    `chosen` is the mean accuracy of the moments that the criterion likes best, beside those of the last and the best.
    """
    import pandas as pd

    lines = []
    for protocol, part in table.groupby("protocol", sort=True):
        for name in CRITERIA:
            known = _known(part, name)
            runs = [run.sort_values("step") for _, run in known.groupby(list(_ABOUT), sort=False) if len(run) > 2]
            if not runs:
                continue
            ranks = [_rank_correlation(run[name], run["accuracy"]) for run in runs]
            chosen = [float(run["accuracy"].iloc[int(np.argmax(run[name]))]) for run in runs]
            lines.append(
                {
                    "protocol": protocol,
                    "criterion": name,
                    "runs": len(runs),
                    "rank correlation": float(np.nanmean(ranks)) if np.isfinite(ranks).any() else float("nan"),
                    "chosen": 100 * float(np.mean(chosen)),
                    "last": 100 * float(np.mean([run["accuracy"].iloc[-1] for run in runs])),
                    "best (oracle)": 100 * float(np.mean([run["accuracy"].max() for run in runs])),
                    "chose the last": float(np.mean([int(np.argmax(run[name])) == len(run) - 1 for run in runs])),
                }
            )
    return pd.DataFrame(lines)


def ranking_of_methods(table: pd.DataFrame) -> pd.DataFrame:
    """The same for methods at their ends: those that were run on one task, noise, draw and seed are ranked together."""
    import pandas as pd

    lines = []
    ends = table.sort_values("step").groupby(list(_ABOUT), sort=False).tail(1)
    where = ["source", "target", "noise", "rate", "draw", "seed"]
    for protocol, part in ends.groupby("protocol", sort=True):
        for name in CRITERIA:
            contests = [contest for _, contest in _known(part, name).groupby(where, sort=False) if len(contest) > 2]
            if not contests:
                continue
            ranks = [_rank_correlation(c[name], c["accuracy"]) for c in contests]
            chosen = [float(c["accuracy"].iloc[int(np.argmax(c[name]))]) for c in contests]
            lines.append(
                {
                    "protocol": protocol,
                    "criterion": name,
                    "contests": len(contests),
                    "rank correlation": float(np.nanmean(ranks)) if np.isfinite(ranks).any() else float("nan"),
                    "chosen": 100 * float(np.mean(chosen)),
                    "mean": 100 * float(np.mean([c["accuracy"].mean() for c in contests])),
                    "best (oracle)": 100 * float(np.mean([c["accuracy"].max() for c in contests])),
                }
            )
    return pd.DataFrame(lines)


def _known(table: pd.DataFrame, criterion: str) -> pd.DataFrame:
    """The evaluations at which it was asked."""
    return table[table[criterion].notna()] if criterion in table else table.iloc[:0]


def _rank_correlation(one: pd.Series[float], other: pd.Series[float]) -> float:
    """Spearman's; not a number where one of them does not vary."""
    if one.nunique() < 2 or other.nunique() < 2:
        return float("nan")
    return float(np.corrcoef(one.rank(), other.rank())[0, 1])
