"""A run folder as a report reads it: what is there is taken, and a run that has not ended has less."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustda.data.labels import label_key
from robustda.doubts import check_doubts
from robustda.errors import RunError
from robustda.reading import read_object, reason

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RunRecord", "read_run", "read_runs"]


@dataclass(frozen=True, eq=False)
class RunRecord:
    """What a run folder says."""

    path: Path
    name: str
    config: dict[str, Any]
    summary: dict[str, Any]
    environment: dict[str, Any]
    metrics: pd.DataFrame
    trust: pd.DataFrame | None
    predictions: pd.DataFrame | None
    done: bool

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.config["method"])

    @property
    def params(self) -> dict[str, Any]:
        """The settings of the method."""
        return dict(self.config["params"])

    @property
    def data(self) -> dict[str, Any]:
        """What the data were."""
        return dict(self.config["data"])

    @property
    def source_name(self) -> str:
        """What the source is called."""
        return str(self.data["source"]) or "the source"

    @property
    def target_name(self) -> str:
        """What the target is called."""
        return str(self.data["target"]) or "the target"

    @cached_property
    def classes(self) -> list[str]:
        """The class names as text."""
        return [label_key(name) for name in self.data["classes"]]

    @cached_property
    def phases(self) -> list[tuple[str, int]]:
        """The phases that were entered, each with the last step that was logged."""
        last = self.metrics.groupby("phase", sort=False)["step"].max()
        return [(str(phase), int(step)) for phase, step in last.items()]

    def series(self, metric: str) -> pd.DataFrame:
        """One metric over the whole run: phase, step, and `at`, the step counted through all phases."""
        before, at = 0, {}
        for phase, steps in self.phases:
            at[phase] = before
            before += steps
        found = self.metrics[self.metrics["metric"] == metric]
        return found.assign(at=found["step"] + found["phase"].map(at).fillna(0).astype(int))

    def last(self, metric: str, share: float = 0.1) -> float | None:
        """The mean of the last tenth of a metric's entries; None where it was not logged."""
        values = self.metrics.loc[self.metrics["metric"] == metric, "value"].to_numpy(float)
        return float(values[-max(1, round(share * len(values))) :].mean()) if len(values) else None

    def codes(self, column: str) -> np.ndarray | None:
        """A column of predictions.csv as codes into the classes, −1 where it is empty; None where there is none."""
        if self.predictions is None or column not in self.predictions:
            return None
        return self.coded(self.predictions[column])

    def coded(self, names: Iterable[str]) -> np.ndarray:
        """Class names, as a table has them, as codes into the classes; −1 for what is none."""
        places = {str(name): place for place, name in enumerate(self.data["classes"])}  # 1.0 is written so
        places |= {name: place for place, name in enumerate(self.classes)}
        return np.array([places.get(label_key(name), -1) for name in names], dtype=np.int64)


def read_run(path: str | os.PathLike[str], name: str = "") -> RunRecord:
    """Read a run folder; RunError where it is none."""
    path = Path(path)
    if (path / "study.db").is_file():
        raise RunError(
            f"{path} is a study, not a run: give the folders of some of its trials, such as {path}/trials/000"
        )
    if not (path / "config.json").is_file():
        raise RunError(f"{path} is no run folder: give the --out folder of a fit")
    try:
        found = RunRecord(
            path=path,
            name=name or path.resolve().name,
            config=_checked(read_object(path / "config.json")),
            summary=_summary(path / "summary.json"),
            environment=_json(path / "environment.json"),
            metrics=_metrics(path / "metrics.csv"),
            trust=_table(path / "trust.csv", ["given_label", "mean_loss", "threshold", "weight"]),
            predictions=_table(path / "predictions.csv", ["id", "prediction", "probability"]),
            done=(path / "done").exists(),
        )
        _check_names(found)
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = reason(error)
        raise RunError(f"the run in {path} cannot be read ({why}): delete the folder and fit again") from error


def read_runs(paths: Sequence[str | os.PathLike[str]]) -> list[RunRecord]:
    """Several run folders, with names that tell them apart: as much of their paths as that takes."""
    whole = [Path(path).resolve() for path in paths]
    for place, path in enumerate(whole):
        if path in whole[:place]:
            raise RunError(f"{paths[place]} is given twice: give each run once")
    length = 1
    while len({path.parts[-length:] for path in whole}) < len(whole):
        length += 1
    names = ["/".join(path.parts[-length:]) for path in whole]
    return [read_run(path, name) for path, name in zip(paths, names, strict=True)]


def _checked(config: dict[str, Any]) -> dict[str, Any]:
    kinds = {"source": str, "target": str, "classes": list, "source_examples": int, "target_examples": int}
    for key, kind in kinds.items():
        if not isinstance(config["data"][key], kind):
            raise ValueError(f"config.json has {str(config['data'][key])[:80]!r} for {key}")
    return {"method": config["method"], "params": dict(config["params"]), **config}


def _json(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}


def _summary(path: Path) -> dict[str, Any]:
    """The outcome, if what should be numbers are numbers."""
    found = _json(path)
    numbers = [found.get(name) for name in ("target_accuracy", "noise_rate", "kept_share", "mended_share", "seconds")]
    rates = found.get("class_noise_rates") or []
    for value in [*numbers, *(rates if isinstance(rates, list) else [rates])]:
        if not isinstance(value, int | float | None):
            raise ValueError(f"{path.name} has {str(value)[:80]!r} for a number")
    expected = found.get("expected_accuracy")
    if expected is not None and not all(0 <= float(expected[name]) <= 1 for name in ("value", "low", "high")):
        raise ValueError(f"{path.name} has {str(expected)[:80]!r} for shares")
    check_doubts(found.get("doubts", {}), path.name)
    return found


def _check_names(run: RunRecord) -> None:
    """Refuse tables that speak of other classes than the run's."""
    for name, table, column in (("trust", run.trust, "given_label"), ("predictions", run.predictions, "prediction")):
        if table is not None and (run.coded(table[column]) < 0).any():
            raise ValueError(f"{name}.csv has a {column} that is no class of the run")


def _metrics(path: Path) -> pd.DataFrame:
    import pandas as pd

    columns = ["phase", "step", "metric", "value"]
    if not path.is_file():
        return pd.DataFrame({name: pd.Series(dtype=object) for name in columns}).astype({"step": int, "value": float})
    table = pd.read_csv(path, dtype={"phase": str, "metric": str, "value": float}, on_bad_lines="skip")
    if missing := [name for name in columns if name not in table]:
        raise ValueError(f"{path.name} has no column {missing[0]}")
    # A run in progress may be in the middle of a line.
    return table[columns].dropna().astype({"step": int})


def _table(path: Path, needed: Sequence[str]) -> pd.DataFrame | None:
    """A table whose names stay text: a class may be called NA, or 1."""
    import pandas as pd

    if not path.is_file():
        return None
    table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding_errors="surrogateescape")
    if missing := [name for name in needed if name not in table]:
        raise ValueError(f"{path.name} has no column {missing[0]}")
    for name in ("mean_loss", "threshold", "weight", "probability"):
        if name in table:
            table[name] = pd.to_numeric(table[name])
    return table
