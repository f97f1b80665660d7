"""How noisy are the labels? Estimates from cross-fitted predictions: no example is judged by a model that saw it.

The predictions come from two plain witnesses, class means and nearest neighbours. Averaging washes noise out of both,
while a regression fitted to noisy labels keeps much of it. Counting confident-learning issues on what they say finds
the overall rate on Office-31 within .02 at 20 and 40 % symmetric noise (`benchmarks/noise_rates.py`), where the anchor
points that the paper points to are far off; so that is the default, and anchor points are on offer. Losses of a network
on its own training examples are never used: it has memorised them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from robustda.errors import DataError
from robustda.noise.vectors import class_means, stratified_folds, unit

__all__ = [
    "Estimator",
    "anchor_transition",
    "confident_classes",
    "confident_joint",
    "cross_fit",
    "noise_rates",
]

Estimator = Literal["confident", "anchor"]

_BLOCK = 1 << 18  # probabilities looked at together
_MOST_NEIGHBOURS = 20_000  # examples among which neighbours are sought; more change little, and cost grows with them


def cross_fit(
    features: np.ndarray, labels: np.ndarray, n_classes: int, *, folds: int = 5, neighbours: int = 10, seed: int = 0
) -> np.ndarray:
    """Probabilities for every example, from others only: the mean of what class means and nearest neighbours say.

    Features are centred and brought to unit length. The class means of four folds judge the fifth, by cosine; before
    that they are taken twice again over the examples that lie nearest to the mean of their own label. The neighbours
    vote with their labels. Time grows with m² up to 20,000 examples, and linearly beyond.
    """
    labels = np.asarray(labels)
    if len(labels) <= max(neighbours, folds):
        raise DataError("the noise rate cannot be estimated from so few examples: give noise_rate a number")
    x = np.asarray(features, dtype=np.float32)
    x = unit(x - x.mean(axis=0))
    rng = np.random.default_rng(seed)
    means = _by_class_means(x, labels, n_classes, folds, rng)
    votes = _by_neighbours(x, labels, n_classes, neighbours, rng)
    average: np.ndarray = (means + votes) / 2
    return average


def noise_rates(
    labels: np.ndarray, probabilities: np.ndarray, *, method: Estimator = "confident", prior: float = 2.0
) -> np.ndarray:
    """For each class, the estimated share of wrong labels among the examples given that label (r_k).

    A class's own estimate rests on few examples, so it is drawn towards the rate of all classes as if `prior` further
    examples had that rate.
    """
    n_classes = probabilities.shape[1]
    counts = np.bincount(labels, minlength=n_classes).astype(float)
    if method == "confident":
        confident = confident_classes(labels, probabilities)
        wrong = np.bincount(labels[(confident >= 0) & (confident != labels)], minlength=n_classes).astype(float)
    else:
        transition = anchor_transition(probabilities)
        # T holds p(given | true); the rate among the examples given label k needs the true classes' shares as well.
        shares = np.clip(np.linalg.lstsq(transition.T, counts / counts.sum(), rcond=None)[0], 0, None)
        right = shares * np.diag(transition)
        given = shares @ transition
        wrong = counts * (1 - np.divide(right, given, out=np.ones(n_classes), where=given > 0))
    overall = wrong.sum() / counts.sum()
    rates: np.ndarray = np.clip((wrong + prior * overall) / (counts + prior), 0.0, 1.0)
    return rates


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


def anchor_transition(probabilities: np.ndarray, *, quantile: float = 1.0) -> np.ndarray:
    """The transition matrix T by anchor points (Patrini et al., 2017).

    Row i is the prediction at the example that is surest to be of class i; a quantile below 1 takes a less extreme one,
    which with many classes is already an example of another class.
    """
    n_classes = probabilities.shape[1]
    rank = min(len(probabilities) - 1, int(np.ceil(quantile * len(probabilities))) - 1)
    anchors = np.argsort(probabilities, axis=0, kind="stable")[max(0, rank), np.arange(n_classes)]
    rows = probabilities[anchors]
    totals = rows.sum(axis=1, keepdims=True)
    transition: np.ndarray = np.divide(rows, totals, out=np.full_like(rows, 1 / n_classes), where=totals > 0)
    return transition


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


def _by_class_means(
    x: np.ndarray, labels: np.ndarray, n_classes: int, folds: int, rng: np.random.Generator, temperature: float = 0.1
) -> np.ndarray:
    fold = stratified_folds(labels, folds, rng)
    probabilities = np.zeros((len(labels), n_classes))
    for number in range(folds):
        train, test = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        means = class_means(x[train], labels[train], n_classes)
        for _ in range(2):
            near = train[(x[train] @ means.T).argmax(axis=1) == labels[train]]
            better = class_means(x[near], labels[near], n_classes)
            # A class with no example near its own mean keeps the mean it had.
            means = np.where(np.bincount(labels[near], minlength=n_classes)[:, None] > 0, better, means)
        scores = (x[test] @ means.T) / temperature
        scores[:, np.bincount(labels[train], minlength=n_classes) == 0] = -np.inf
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities[test] = scores / scores.sum(axis=1, keepdims=True)
    return probabilities


def _by_neighbours(
    x: np.ndarray, labels: np.ndarray, n_classes: int, neighbours: int, rng: np.random.Generator
) -> np.ndarray:
    size = len(labels)
    pool = np.arange(size) if size <= _MOST_NEIGHBOURS else rng.choice(size, _MOST_NEIGHBOURS, replace=False)
    place = np.full(size, -1)
    place[pool] = np.arange(len(pool))
    probabilities = np.zeros((size, n_classes))
    for start in range(0, size, 1024):
        rows = np.arange(start, min(start + 1024, size))
        similarity = x[rows] @ x[pool].T
        own = place[rows] >= 0
        similarity[own, place[rows[own]]] = -np.inf
        nearest = np.argpartition(similarity, -neighbours, axis=1)[:, -neighbours:]
        np.add.at(probabilities, (rows[:, None], labels[pool[nearest]]), 1 / neighbours)
    return probabilities
