"""Labels, probabilities, features and losses as they must be to estimate anything from them; else a line of advice."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from robustda.errors import DataError

__all__ = ["check_features", "check_labels", "check_losses", "check_predictions"]

Codes = npt.NDArray[np.int64]
Probabilities = npt.NDArray[np.float64]


def check_labels(labels: npt.ArrayLike, n_classes: int | None = None) -> tuple[Codes, int]:
    """Labels as codes 0..K−1, and K; without `n_classes` the largest code decides."""
    given = np.asarray(labels)
    if given.ndim != 1 or not len(given):
        raise DataError(f"the labels have shape {given.shape}: give a list with one label for each example")
    if given.dtype == bool or not np.issubdtype(given.dtype, np.number):
        raise DataError(f"the labels are {given.dtype}: give codes 0, 1, 2, … such as np.unique's inverse")
    if not np.isfinite(given).all() or (given != np.rint(given)).any():
        raise DataError("some labels are no whole numbers: give codes 0, 1, 2, …, and leave unlabelled examples out")
    codes = given.astype(np.int64)
    size = int(codes.max()) + 1 if n_classes is None else n_classes
    outside = np.flatnonzero((codes < 0) | (codes >= size))
    if len(outside):
        first = int(outside[0])
        raise DataError(
            f"{_many(len(outside), 'label lies', 'labels lie')} outside the {size} classes, the first is "
            f"{codes[first]} at row {first}: give codes 0..{size - 1}, and leave unlabelled examples out"
        )
    return codes, size


def check_predictions(labels: npt.ArrayLike, pred_probs: npt.ArrayLike) -> tuple[Codes, Probabilities]:
    """Labels as codes, and probabilities as float64 whose rows sum to one."""
    try:
        probabilities = np.asarray(pred_probs, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("the probabilities are no table of numbers: give a row for each example") from None
    if probabilities.ndim != 2 or not probabilities.shape[1]:
        raise DataError(f"the probabilities have shape {probabilities.shape}: give (examples, classes)")
    codes, _ = check_labels(labels, probabilities.shape[1])
    if len(codes) != len(probabilities):
        raise DataError(f"{len(codes)} labels came with {len(probabilities)} rows of probabilities: give one for each")
    bad = ~np.isfinite(probabilities).all(axis=1)
    if bad.any():
        raise DataError(
            f"{_many(int(bad.sum()), 'row of probabilities holds', 'rows of probabilities hold')} NaN or infinity, row "
            f"{int(bad.argmax())} first: "
            "leave these examples out or predict them again"
        )
    if (probabilities < 0).any():
        row = int((probabilities < 0).any(axis=1).argmax())
        raise DataError(f"row {row} of the probabilities is negative: give probabilities, such as a softmax of logits")
    totals = probabilities.sum(axis=1)
    off = np.abs(totals - 1) > 1e-3
    if off.any():
        row = int(off.argmax())
        raise DataError(
            f"{_many(int(off.sum()), 'row of probabilities does', 'rows of probabilities do')} not sum to one, row "
            f"{row} sums to {totals[row]:.4g}: divide each row by its sum, or apply a softmax to logits"
        )
    return codes, probabilities


def check_features(features: npt.ArrayLike, size: int) -> npt.NDArray[np.float32]:
    """Features as float32 rows, one for each of `size` examples."""
    try:
        rows = np.asarray(features, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError("the features are no table of numbers: give a row for each example") from None
    if rows.ndim < 2 or len(rows) != size:
        raise DataError(f"{size} labels came with features of shape {rows.shape}: give one row for each label")
    rows = rows.reshape(size, -1)
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise DataError(
            f"{_many(int(bad.sum()), 'row of features holds', 'rows of features hold')} NaN or infinity, row "
            f"{int(bad.argmax())} first: "
            "leave these examples out or fill the gaps"
        )
    return rows


def check_losses(losses: npt.ArrayLike, size: int) -> npt.NDArray[np.float64]:
    """One finite loss for each of `size` examples."""
    values: npt.NDArray[Any] = np.asarray(losses)
    if values.shape != (size,) or not np.issubdtype(values.dtype, np.number):
        raise DataError(f"{size} examples came with losses of shape {values.shape}: give one number for each example")
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        raise DataError(f"the loss at row {row} is {values[row]}: give finite losses, such as means over epochs")
    return values


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"
