"""What a fit comes to: the attributes of the fitted method, and the files that a finished run folder holds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robustda._version import __version__
from robustda.data.domain import Domain
from robustda.data.wording import plural
from robustda.doubts import doubts_of, in_words
from robustda.errors import RobustDAWarning, RunError
from robustda.evaluation import accuracy
from robustda.files import save_tensors
from robustda.health import remedy
from robustda.methods.base import Method, Phase, Task
from robustda.methods.task import forward_all
from robustda.predict import describe, prediction_table
from robustda.run import Metrics, RunFolder

if TYPE_CHECKING:
    from robustda.loop import Run

__all__ = ["conclude", "take_over"]

_ROWS = 1 << 18  # of a table that are put together at a time


def conclude(run: Run, phase: Phase) -> None:
    """Leave what was learned on the method and in the run folder."""
    import pandas as pd

    method, memory = run.method, run.task.memory
    logits = phase.logits() if phase.logits else forward_all(phase.network, run.task.target)
    probabilities = torch.softmax(logits, dim=1).cpu().numpy()
    if not np.isfinite(probabilities).all():
        raise RunError(f"training diverged: the predictions are not finite; {remedy(phase)}")
    if run.ranks.first:
        run.health.conclude(phase, logits)
    method.network_ = phase.network  # type: ignore[assignment]
    method.example_shape_ = run.task.source.example_shape
    method.history_ = pd.DataFrame(run.metrics.rows, columns=list(Metrics.HEADER))
    if "trust" in memory:
        method.trust_ = memory["trust"].cpu().numpy()
        method.learned_as_ = _learned_as(run.task)
        counts = torch.bincount(run.task.labels, minlength=run.task.n_classes).double()
        method.noise_rate_ = float((memory["noise_rate"] * counts).sum() / counts.sum())
    method.summary_ = _summary(run, probabilities)
    if run.folder is not None:
        _write(run.folder, method, run.task, run.source, run.target, probabilities)


def take_over(method: Method, finished: Method) -> None:
    """Make what a finished run has learned that of `method`."""
    for name, value in vars(finished).items():
        if name.endswith("_"):
            setattr(method, name, value)


def _summary(run: Run, probabilities: np.ndarray) -> dict[str, Any]:
    """The outcome in a few numbers."""
    method, memory = run.method, run.task.memory
    summary = {
        "method": method.name,
        "variant": getattr(method, "variant", None),
        "seed": method.seed,
        "steps": method.steps,
        "seconds": round(run.seconds_before + time.monotonic() - run.started, 2),
        "noise_rate": getattr(method, "noise_rate_", None),
        "kept_share": float(method.trust_.mean()) if "trust" in memory else None,
        "mended_share": _mended(run.task) if "trust" in memory else None,
        "target_accuracy": None if run.target.y is None else accuracy(probabilities.argmax(axis=1), run.target),
        "placement": _placement(run.task),
    }
    if method.columns_:
        summary["seen_as"] = f"rows of a table with {plural(run.source.shape[0], 'column')}"
    if "trust" in memory:
        summary["class_noise_rates"] = memory["noise_rate"].tolist()
    if "expected" in memory:
        summary["expected_accuracy"] = dict(zip(("value", "low", "high"), memory["expected"].tolist(), strict=True))
    if found := doubts_of(memory, run.source.classes):
        summary["doubts"] = found
        if run.ranks.first:
            for said in in_words(found):
                warnings.warn(said, RobustDAWarning, stacklevel=2)
    if run.rate_share < 1:
        summary["rolled_back_to_rate"] = run.rate_share
    if "select_step" in memory:
        summary |= {"selected_by": run.runtime.select, "selected_step": int(memory["select_step"])}
    return summary


def _placement(task: Task) -> str:
    """Where the data were, in words."""
    where = ("streamed", "on the device")
    source, target = (where[inputs.resident] for inputs in (task.source, task.target))
    return source if source == target else f"source {source}, target {target}"


def _write(
    folder: RunFolder, method: Method, task: Task, source: Domain, target: Domain, probabilities: np.ndarray
) -> None:
    """Fill the run folder; that it is done comes last."""
    if "trust" in task.memory:
        header = ("id", "given_label", "mean_loss", "threshold", "weight", "learned_as")
        folder.write_csv("trust.csv", header, _trust_rows(task, source))
    if "loss_curves" in task.memory:
        save_tensors(folder.path / "curves.safetensors", {"losses": task.memory["loss_curves"]})
    digest = save_tensors(folder.path / "model.safetensors", method.network_.state_dict())
    folder.write_json("model.json", {"robustda": __version__, **describe(method), "digest": digest})
    folder.write_csv("predictions.csv", *_predictions(target, method.classes_, probabilities))
    folder.write_json("summary.json", method.summary_)
    folder.finish()


def _learned_as(task: Task) -> np.ndarray:
    """The class that each source example was learned as, −1 for those that were left out."""
    codes = task.memory.get("learned_as")
    if codes is None:
        codes = torch.where(task.memory["trust"].to(task.device) > 0, task.labels, -1)
    return codes.cpu().numpy()


def _mended(task: Task) -> float:
    """The share of the source that was learned as a class other than the one given."""
    codes = _learned_as(task)
    return float(((codes >= 0) & (codes != task.labels.cpu().numpy())).mean())


def _trust_rows(task: Task, source: Domain) -> Iterator[tuple[Any, ...]]:
    """What was made of each source example, a block at a time: as Python's objects, ten million rows take gigabytes."""
    assert source.y is not None
    columns = [task.memory[name].cpu() for name in ("mean_loss", "threshold", "trust")]
    names, learned = np.append(source.classes.astype(object), ""), _learned_as(task)
    for start in range(0, len(source), _ROWS):
        block = slice(start, start + _ROWS)
        values = [column[block].tolist() for column in columns]
        yield from zip(source.ids[block], names[source.y[block]], *values, names[learned[block]], strict=True)


def _predictions(target: Domain, classes: np.ndarray, probabilities: np.ndarray) -> tuple[list[str], Iterator[Any]]:
    """The header and the rows of the table of predictions."""
    header = list(prediction_table(target.take(slice(0, 1)), classes, probabilities[:1]).columns)
    blocks = (slice(start, start + _ROWS) for start in range(0, len(target), _ROWS))
    tables = (prediction_table(target.take(block), classes, probabilities[block]) for block in blocks)
    return header, (row for table in tables for row in table.itertuples(index=False))
