"""Kinds: where classes are few and one is much rarer than another, the common ones are told apart by kinds of things.

Whoever goes by clusters takes classes to be about as frequent as each other, and the examples of one to lie together.
Of sound and damaged parts neither is true: the sound ones are of many kinds, some of them nearer to what is damaged
than to the mean of all that is sound. So a class with n times as many examples as the rarest is divided into n clusters
of its own, of which heads and members learn; what they say of the kinds of a class is summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robustda.columns import Described
from robustda.noise.vectors import unit
from robustda.noise.witnesses import Description

__all__ = ["MOST", "Kinds", "find_kinds"]

Codes = npt.NDArray[np.int64]
Single = npt.NDArray[np.float32]

MOST = 36
"""of kinds that there may be, all classes together"""
_FEW = 12  # classes; of more, a common one has a small part of all examples
_UNEQUAL = 2.0  # times as many examples as the rarest class, for one to be divided
_SHARE = 1 / 24  # of all examples that a kind has at least
_WIDTH = 64  # main directions in which kinds are sought
_BLOCK, _ENOUGH = 4096, 5000


@dataclass(frozen=True, eq=False)
class Kinds:
    """Of which class each kind is, and where it lies among the `places` of the examples."""

    whose: Codes
    centres: Single
    places: Single

    def of(self, codes: Codes) -> Codes:
        """The kind of each example that is of these classes, −1 for none."""
        near = 2 * self.places @ self.centres.T - (self.centres**2).sum(axis=1)
        own = np.where(self.whose == codes[:, None], near, -np.inf).argmax(axis=1)
        return np.where(codes >= 0, own, -1)


def find_kinds(
    features: Described, codes: Codes, n_classes: int, seen_as: Callable[[np.ndarray], np.ndarray], seed: int
) -> Kinds | None:
    """The kinds of all classes, by features that `seen_as` brings to unit length; None where they need no dividing.

    >>> x = np.repeat(np.eye(5, dtype=np.float32), 20, axis=0)
    >>> kinds = find_kinds(x, np.repeat([0, 1], [80, 20]), 2, seen_as=np.asarray, seed=0)
    >>> kinds.whose.tolist()
    [0, 0, 0, 0, 1]
    """
    counts = np.bincount(codes[codes >= 0], minlength=n_classes)
    if n_classes > _FEW or counts.min() == 0 or counts.max() < _UNEQUAL * counts.min():
        return None
    parts = np.maximum(1, np.rint(counts / max(counts.min(), _SHARE * counts.sum()))).astype(int)
    if parts.max() == 1:
        return None
    from sklearn.cluster import KMeans

    rows = np.arange(len(features))
    look = Description(seen_as(features[rows[:: -(-len(rows) // _ENOUGH)]]), seed)
    # A few at a time, for features may be made when they are asked for.
    blocks = (features[rows[start : start + _BLOCK]] for start in range(0, len(rows), _BLOCK))
    places = unit(np.concatenate([look.of(seen_as(block))[:, :_WIDTH] for block in blocks]))
    whose, centres = [], []
    for label, count in enumerate(parts):
        own = places[codes == label]
        own = own[:: -(-len(own) // _ENOUGH)]
        count = min(count, len(np.unique(own, axis=0)))
        centres.append(KMeans(count, n_init=3, random_state=seed % 2**32).fit(own).cluster_centers_)
        whose += [label] * count
    return Kinds(np.array(whose), np.concatenate(centres).astype(np.float32), places)
