"""Small arithmetic that the witnesses of label noise share: unit vectors, class means, folds."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Lookup", "class_means", "stratified_folds", "unit"]

Single = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int64]


_BLOCK = 4096  # rows at a time: what is made on the way need not be as large as the outcome


class Lookup(Protocol):
    """An array of vectors, or what makes them when they are asked for."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any, /) -> Any: ...
    def __array__(self) -> npt.NDArray[Any]: ...


def unit(x: npt.NDArray[Any], out: Single | None = None) -> Single:
    """The rows at unit length; rows of zeros stay. `out` may be `x` itself."""
    scaled = np.empty(x.shape, dtype=np.float32) if out is None else out
    for start in range(0, len(x), _BLOCK):
        rows = x[start : start + _BLOCK]
        scaled[start : start + _BLOCK] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return scaled


def class_means(x: Single, labels: Codes, n_classes: int) -> Single:
    """The direction of each class's mean; zeros for a class without examples."""
    sums = np.zeros((n_classes, x.shape[1]), dtype=np.float32)
    np.add.at(sums, labels, x)
    return unit(sums)


def stratified_folds(labels: Codes, folds: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """A fold for each example, spread evenly over every class."""
    shuffled = rng.permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % folds
    return fold
