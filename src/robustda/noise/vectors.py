"""Small arithmetic that the witnesses of label noise share: unit vectors, class means, folds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["class_means", "stratified_folds", "unit"]

Single = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int64]


def unit(x: npt.NDArray[Any]) -> Single:
    """The rows at unit length; rows of zeros stay."""
    scaled: Single = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)).astype(np.float32, copy=False)
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
