"""Four ways to the joint distribution of true class and given label, each from predictions that saw no labels.

An estimator is made once and then asked with `share`, how often each example counts: all ones for the estimate itself,
the counts of a resample for the bootstrap. The answer is a (K, K) table of (true class, given label) that sums to one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from robustda.noise.confident import confident_joint
from robustda.noise.likelihood import evenly, posterior, rows_of, sums_by_label

__all__ = ["Anchor", "Confident", "Estimator", "Likelihood", "Mixture"]

Codes = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
Estimator = Callable[[Values], Values]


class Confident:
    """Counts of examples that confidently belong to another class than they are given (Northcutt et al., 2021)."""

    def __init__(self, labels: Codes, probabilities: Values) -> None:
        self.labels, self.probabilities = labels, probabilities
        self.own = probabilities[np.arange(len(labels)), labels]

    def __call__(self, share: Values) -> Values:
        n_classes = self.probabilities.shape[1]
        if (share == 1).all():
            joint = confident_joint(self.labels, self.probabilities).T.astype(float)
        else:
            joint = self._weighted(share, n_classes)
        # Whoever is confident of no class is counted as labelled right.
        counts = np.bincount(self.labels, weights=share, minlength=n_classes)
        np.fill_diagonal(joint, 0)
        np.fill_diagonal(joint, np.maximum(counts - joint.sum(axis=0), 0))
        return _shares(joint)

    def _weighted(self, share: Values, n_classes: int) -> Values:
        counts = np.bincount(self.labels, weights=share, minlength=n_classes)
        sums = np.bincount(self.labels, weights=share * self.own, minlength=n_classes)
        threshold = np.divide(sums, counts, out=np.full(n_classes, np.inf), where=counts > 0)
        above = np.where(self.probabilities >= threshold - 1e-6, self.probabilities, -1.0)
        best = above.argmax(axis=1)
        known = above[np.arange(len(best)), best] >= 0
        place = best[known] * n_classes + self.labels[known]
        table = np.bincount(place, weights=share[known], minlength=n_classes**2).astype(np.float64)
        return table.reshape(n_classes, n_classes)


class Likelihood:
    """The transition matrix that makes the given labels likeliest; if `cautious`, of those that have one rate."""

    def __init__(self, labels: Codes, probabilities: Values, transition: Values, *, cautious: bool = False) -> None:
        self.labels, self.probabilities, self.transition = labels, probabilities, transition
        self.rows_of = evenly if cautious else rows_of

    def __call__(self, share: Values) -> Values:
        transition = self.transition
        # T is nearly right for a resample too, so that two rounds bring it there.
        for _ in range(2):
            belief, _ = posterior(self.probabilities, transition, self.labels)
            joint = sums_by_label(belief * share[:, None], self.labels, len(transition)).T
            transition = self.rows_of(joint)
        return _shares(joint)


class Anchor:
    """T read off at the examples that are surest to be of each class (Patrini et al., 2017).

    Anchor points need the probability of the *given* label, so the predictions are flattened first until they suit the
    given labels; and the mean over a fifth of a class is taken, since a single extreme example says too little. As
    published the estimate is off by .19 on simulated noise, in this form by .04.
    """

    def __init__(self, labels: Codes, probabilities: Values) -> None:
        size, n_classes = probabilities.shape
        self.labels = labels
        self.flat = _flattened(np.log(np.maximum(probabilities, 1e-4)), labels)
        most = min(size, max(3, size // (5 * n_classes)))
        self.anchors = np.argpartition(self.flat, size - most, axis=0)[size - most :]

    def __call__(self, share: Values) -> Values:
        n_classes = self.flat.shape[1]
        transition = np.empty((n_classes, n_classes))
        for k, rows in enumerate(self.anchors.T):
            weight = share[rows] if share[rows].any() else np.ones(len(rows))
            transition[k] = weight @ self.flat[rows] / weight.sum()
        given = np.bincount(self.labels, weights=share, minlength=n_classes)
        # T holds p(given | true); what the shares of the true classes are follows from those of the given labels.
        true = np.clip(np.linalg.lstsq(transition.T, given / given.sum(), rcond=None)[0], 0, None)
        joint = true[:, None] * transition
        columns = joint.sum(axis=0)
        joint *= np.divide(given / given.sum(), columns, out=np.zeros(n_classes), where=columns > 0)
        return _shares(joint)


class Mixture:
    """The share of large losses in each class; which class a wrong label hides, losses do not say."""

    def __init__(self, labels: Codes, n_classes: int, wrong: Values) -> None:
        self.labels, self.n_classes, self.wrong = labels, n_classes, wrong

    def __call__(self, share: Values) -> Values:
        given = np.bincount(self.labels, weights=share, minlength=self.n_classes)
        off = np.bincount(self.labels, weights=share * self.wrong, minlength=self.n_classes)
        joint = np.tile(off / max(1, self.n_classes - 1), (self.n_classes, 1))
        np.fill_diagonal(joint, given - off if self.n_classes > 1 else given)
        return _shares(joint)


def _shares(joint: Values) -> Values:
    shares: Values = joint / joint.sum()
    return shares


def _flattened(logits: Values, labels: Codes) -> Values:
    """The softmax of the logits times the factor at which the given labels are likeliest, by Newton's method."""
    own = logits[np.arange(len(labels)), labels]
    factor = 1.0
    for _ in range(50):
        flat = _power(logits, factor)
        mean = (flat * logits).sum(axis=1)
        bend = float(((flat * logits**2).sum(axis=1) - mean**2).mean())
        step = float(np.clip((own - mean).mean() / (bend + 1e-9), -0.3, 0.3))
        factor = float(np.clip(factor + step, 0.02, 20))
        if abs(step) < 1e-4:
            break
    return _power(logits, factor)


def _power(logits: Values, factor: float) -> Values:
    flat: Values = np.exp(factor * (logits - logits.max(axis=1, keepdims=True)))
    flat /= flat.sum(axis=1, keepdims=True)
    return flat
