"""The confident joint (Northcutt et al., 2021): who belongs to another class with confidence, counted."""

from __future__ import annotations

import numpy as np

__all__ = ["confident_classes", "confident_joint"]

_BLOCK = 1 << 18  # probabilities looked at together


def confident_joint(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Counts of (given label, confident class), over the examples that have one (Northcutt et al., 2021)."""
    n_classes = probabilities.shape[1]
    confident = confident_classes(labels, probabilities)
    known = confident >= 0
    joint = np.bincount(labels[known] * n_classes + confident[known], minlength=n_classes * n_classes)
    return joint.reshape(n_classes, n_classes)


def confident_classes(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The class that each example belongs to with confidence, or −1.

    An example is confident of class j when its probability of j is at least the mean probability of j among those
    labelled j; of several such classes it takes the most probable.
    """
    n_classes = probabilities.shape[1]
    counts = np.bincount(labels, minlength=n_classes)
    own = probabilities[np.arange(len(labels)), labels]
    sums = np.bincount(labels, weights=own, minlength=n_classes)
    threshold = np.divide(sums, counts, out=np.full(n_classes, np.inf), where=counts > 0)
    best = np.full(len(labels), -1)
    # In blocks that stay in the processor's cache, and by the few entries that reach their threshold, not by all.
    rows_at_once = max(1, _BLOCK // n_classes)
    for start in range(0, len(labels), rows_at_once):
        block = probabilities[start : start + rows_at_once]
        reached = np.flatnonzero(block >= threshold - 1e-6)  # several times as fast as np.nonzero in two dimensions
        rows, classes = _most_probable(block, *np.divmod(reached, n_classes))
        best[start + rows] = classes
    return best


def _most_probable(block: np.ndarray, rows: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the entries (row, class), in order, those that are the greatest of their row, ties in reverse order."""
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    if len(starts) == len(rows):
        return rows, classes
    values = block[rows, classes]
    greatest = np.maximum.reduceat(values, starts).repeat(np.diff(starts, append=len(rows)))
    # Whoever writes these to an array writes the first of several last, so that it is the one that stays.
    chosen = np.flatnonzero(values == greatest)[::-1]
    return rows[chosen], classes[chosen]
