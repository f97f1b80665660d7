"""Where most labels are wrong: clusters of examples, each matched to one class by all the labels in it.

A label that is wrong four times in five says next to nothing about its example, and what is learned from all of them
not much more. But examples fall into clusters whatever their labels, and all labels of a cluster together tell more, as
no two clusters are of the same class. Clusterings differ, so several are asked.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robustda.noise.likelihood import symmetric
from robustda.noise.vectors import unit
from robustda.noise.witnesses import describe

__all__ = ["beside_votes", "cluster_votes", "say_of_clusters"]

Codes = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

_WIDTH = 64  # main directions in which clusters are sought; 32 and 128 came to the same
_CLUSTERINGS, _FEWEST = 10, 3
_WORK = 3e9  # products of all clusterings together: of large data there are fewer of them
_DOUBT = 0.03  # what a class gets that no clustering names
_FROM, _FULL = 0.5, 0.75  # share of wrong labels from which on clusters have a say, and at which they have all of it


def say_of_clusters(rate: float) -> float:
    """How much clusters count, from 0 to 1: nothing as long as most labels are right."""
    return float(np.clip((rate - _FROM) / (_FULL - _FROM), 0, 1))


def beside_votes(belief: Values, votes: Values, rate: float) -> Values:
    """The belief (m, K) in each class once clusters have had their say; `rate` is the share of wrong labels."""
    moved: Values = belief * (votes + _DOUBT) ** say_of_clusters(rate)
    moved /= moved.sum(axis=1, keepdims=True)
    return moved


def cluster_votes(
    features: npt.NDArray[np.float32], labels: Codes, n_classes: int, rate: float, *, seed: int = 0
) -> Values:
    """The share (m, K) of clusterings by which an example is of a class.

    >>> rng = np.random.default_rng(0)
    >>> true = np.arange(400) % 4
    >>> given = np.where(rng.random(400) < 0.6, rng.integers(0, 4, 400), true)
    >>> x = (3 * np.eye(4)[true] + rng.normal(size=(400, 4)) / 2).astype(np.float32)
    >>> bool((cluster_votes(x, given, 4, 0.45).argmax(axis=1) == true).mean() > 0.95)
    True
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans

    x = unit(describe(features, seed)[:, :_WIDTH])
    most = min(n_classes, len(np.unique(x, axis=0)))
    once = float(len(x)) * most * x.shape[1]
    log_likely = np.log(np.maximum(symmetric(rate, n_classes), 1e-4))
    count = int(np.clip(_WORK / once, _FEWEST, _CLUSTERINGS))
    votes = np.zeros((len(x), n_classes))
    for number in range(count):
        found = KMeans(most, n_init=1, max_iter=50, random_state=seed * _CLUSTERINGS + number).fit(x).labels_
        given = np.zeros((most, n_classes))
        np.add.at(given, (found, labels), 1)
        clusters, classes = linear_sum_assignment(given @ log_likely.T, maximize=True)
        named = np.zeros(most, dtype=np.int64)
        named[clusters] = classes
        votes[np.arange(len(x)), named[found]] += 1 / count
    return votes
