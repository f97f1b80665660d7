"""How noisy are the labels? Estimates from cross-fitted predictions, where no example is judged by a model that saw it.

Measured on Office-31 with 40 % label noise, counting confident-learning issues comes within .04 of the truth, while the
anchor points that the paper points to are off by .15 to .48; so the first is the default and the second is on offer.
Losses of a network on its own training examples are never used: it has memorised them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from robustda.errors import DataError

__all__ = [
    "Estimator",
    "anchor_transition",
    "confident_classes",
    "confident_joint",
    "cross_fit",
    "noise_rates",
]

Estimator = Literal["confident", "anchor"]

_LARGEST_FIT = 20_000  # examples that a fold's classifier is trained on at most; more change little and cost much


def cross_fit(
    features: np.ndarray,
    labels: np.ndarray,
    n_classes: int,
    *,
    folds: int = 5,
    inverse_penalty: float = 10.0,
    seed: int = 0,
) -> np.ndarray:
    """Probabilities for every example from a logistic regression that was trained without it.

    Features are centred and brought to unit length first. Folds are drawn within each class; a class that is absent
    from a fold's training part gets probability 0 there.
    """
    from sklearn.linear_model import LogisticRegression

    labels = np.asarray(labels)
    rng = np.random.default_rng(seed)
    fold = _stratified_folds(labels, folds, rng)
    x = np.asarray(features, dtype=np.float32)
    x = x - x.mean(axis=0)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    probabilities = np.zeros((len(labels), n_classes))
    for number in range(folds):
        test = fold == number
        train = np.flatnonzero(~test)
        if len(train) > _LARGEST_FIT:
            train = rng.choice(train, _LARGEST_FIT, replace=False)
        present = np.unique(labels[train])
        if not test.any():
            continue
        if len(present) < 2:
            raise DataError("the noise rate cannot be estimated from so few examples: give noise_rate a number")
        model = LogisticRegression(C=inverse_penalty, max_iter=100, tol=1e-3).fit(x[train], labels[train])
        probabilities[np.ix_(test, present)] = model.predict_proba(x[test])
    return probabilities


def noise_rates(
    labels: np.ndarray, probabilities: np.ndarray, *, method: Estimator = "confident", prior: float = 10.0
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
    above = np.where(probabilities >= threshold - 1e-6, probabilities, -1.0)
    best: np.ndarray = above.argmax(axis=1)
    best[above[np.arange(len(labels)), best] < 0] = -1
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


def _stratified_folds(labels: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """A fold for each example, spread evenly over every class."""
    shuffled = rng.permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % folds
    return fold
