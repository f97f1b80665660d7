"""A third witness, for rows of a table: a forest of trees, each of which is asked of the rows that it never saw.

Columns of a table mean something one by one, and a tree looks at them so. Where classes overlap, neighbours and a
linear fit take overlap for wrong labels, since they are often wrong themselves; a forest is so less often.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robustda.noise.vectors import Codes, Single

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier

__all__ = ["Trees"]

_TREES = 100
_LEAF = 3  # labels are noisy: a leaf of one row would say what its label says
_LEARN = 4_000  # rows that a tree learns from: more take longer, and trees that differ are better together
_ROWS = 20_000  # among which they are; the others are judged by all trees
_SURE = 0.9  # of all rows it is less sure than of those where its score is 1


class Trees:
    """A forest on these rows. It gives scores: 0 for a class that is no likelier than any, 1 where it is sure."""

    forest: RandomForestClassifier

    def __init__(self, columns: npt.NDArray[Any], n_classes: int, *, seed: int = 0) -> None:
        self.columns, self.n_classes, self.seed = columns, n_classes, seed

    def learn(self, labels: Codes, weights: npt.NDArray[np.floating[Any]] | None = None) -> Single:
        """Learn from labels of all rows; what trees that did not learn from a row's own label say of it (m, K)."""
        from sklearn.ensemble import RandomForestClassifier

        rng = np.random.default_rng(self.seed)
        size = len(labels)
        rows = np.arange(size) if size <= _ROWS else np.sort(rng.choice(size, _ROWS, replace=False))
        self.forest = RandomForestClassifier(
            _TREES,
            min_samples_leaf=_LEAF,
            max_samples=min(_LEARN, len(rows)),
            oob_score=True,
            random_state=int(rng.integers(2**31)),
            n_jobs=_threads(),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few rows some are seen by every tree: of these it says nothing
            self.forest.fit(_single(self.columns[rows]), labels[rows], None if weights is None else weights[rows])
        self.forest.n_jobs = 1  # to the last bit the same in every run: threads would add up as they come
        asked = np.asarray(self.forest.oob_decision_function_, dtype=np.float32)
        self._chance = 1 / self.n_classes  # also where few classes, or one, are left among the labels
        asked[np.isnan(asked)] = self._chance
        self._sure = max(float(np.quantile(asked.max(axis=1), _SURE)) - self._chance, 1e-3)
        scores = np.empty((size, self.n_classes), dtype=np.float32)
        scores[rows] = self._scores(asked)
        others = np.setdiff1d(np.arange(size), rows, assume_unique=True)
        for part in np.array_split(others, -(-len(others) // _ROWS) or 1):
            if len(part):
                scores[part] = self(self.columns[part])
        return scores

    def __call__(self, columns: npt.NDArray[Any]) -> Single:
        """What all trees say of other rows (m, K)."""
        return self._scores(self.forest.predict_proba(_single(columns)))

    def _scores(self, frequencies: npt.NDArray[np.floating[Any]]) -> Single:
        """The frequencies of labels, stretched, since it is never sure where many labels are wrong."""
        scores = np.full((len(frequencies), self.n_classes), -self._chance / self._sure, dtype=np.float32)
        scores[:, self.forest.classes_] = (frequencies - self._chance) / self._sure
        return scores


def _single(columns: npt.NDArray[Any]) -> Single:
    return np.asarray(columns, dtype=np.float32)


def _threads() -> int:
    import torch

    return torch.get_num_threads()
