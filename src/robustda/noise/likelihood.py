"""What the labels say once two things are told apart: classes that look alike, and labels that were exchanged.

The model has two parts. Scores say how much an example looks like each class; a softmax of their weighted sum is the
probability p of its true class. A transition matrix T then turns the true class into the given label. Both parts are
fitted together by expectation and maximisation, so that the given labels become as likely as they can:

    p(given j | example i) = Σ_k p_ik T_kj

What this buys over counting disagreements: an example of two classes that look alike is not called wrong, since p is
divided there; and where a class loses examples to one other class only, T learns it and looks there.

A free T learns as readily which classes look alike, though, and then calls the labels of hard examples wrong. So there
is a *cautious* reading, too: a wrong label may be any other, and all classes have them at one rate. What does not fit
that, p must explain. Which of the two is nearer to the truth their likelihood cannot say, which is always greater with
more freedom; but those who learn from what is believed can be asked for labels that they have not seen
(`witnesses.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Explanation", "evenly", "explain", "posterior", "rows_of", "softmax", "sums_by_label", "symmetric"]

Floats = npt.NDArray[np.floating[Any]]
Codes = npt.NDArray[np.int64]

_PRIOR = 5.0
"""Examples that each row of T is given beforehand, wrong as often as all are: few examples say little about a class."""

_USUAL_WEIGHT, _PULL = 10.0, 0.075
"""What the scores' weights together are drawn to, and how strongly if they double. Where the witnesses err on hard
examples, likelihood alone sharpens p too far and calls those wrong; on simulated noise this halves the error of the
rate."""

_STEPS, _LEAST_GAIN = 40, 1e-5


@dataclass(frozen=True)
class Explanation:
    """The fitted model: how scores are weighed, and how true classes become given labels."""

    weights: npt.NDArray[np.float64]
    transition: npt.NDArray[np.float64]
    """T, rows are true classes: T[k, j] = p(given j | true k)"""
    joint: npt.NDArray[np.float64]
    """how many examples are of true class k (row) and labelled j (column)"""
    probabilities: Floats
    """of the true class, from the scores alone: an example's own label has no part in its row"""
    log_likelihood: float


def explain(
    scores: Sequence[Floats],
    labels: Codes,
    *,
    transition: npt.NDArray[np.float64] | None = None,
    usual_weight: float | None = None,
    cautious: bool = False,
) -> Explanation:
    """Fit the model to given labels; every array of `scores` is (m, K), larger for likelier classes.

    It starts from the belief that 30 % of the labels are wrong: were it to start from none, it could also end there,
    taking exchanged labels for classes that look alike. A `transition` that is given stays as it is. `usual_weight` is
    what the weight of each array of scores is drawn to. `cautious` has one rate for all labels, whatever they are.
    """
    usual_weight = usual_weight or _USUAL_WEIGHT / len(scores)
    n_classes = scores[0].shape[1]
    weights = np.full(len(scores), usual_weight)
    fitted = symmetric(0.3, n_classes) if transition is None else transition
    probabilities = softmax(scores, weights)
    before = -np.inf
    for _ in range(_STEPS):
        belief, likelihood = posterior(probabilities, fitted, labels)
        now = float(np.log(likelihood).mean())
        joint = sums_by_label(belief, labels, n_classes).T
        if transition is None:
            fitted = evenly(joint) if cautious else rows_of(joint)
        for _ in range(2):
            weights = _newton_step(scores, weights, belief, probabilities, usual_weight)
            probabilities = softmax(scores, weights)
        if abs(now - before) < _LEAST_GAIN:
            break
        before = now
    return Explanation(weights, fitted, joint, probabilities, now)


def rows_of(joint: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """T from counts of (true class, given label); a class of few examples is drawn to the rate of all."""
    transition: npt.NDArray[np.float64] = joint + _PRIOR * evenly(joint)
    transition /= transition.sum(axis=1, keepdims=True)
    return transition


def evenly(joint: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """T from the same counts if all labels are wrong at one rate, and are any other then."""
    return symmetric(float(1 - np.trace(joint) / joint.sum()), len(joint))


def posterior(probabilities: Floats, transition: npt.NDArray[np.float64], labels: Codes) -> tuple[Floats, Floats]:
    """Each example's true class once its given label is taken into account, and how likely that label was."""
    belief = probabilities * transition.T.astype(probabilities.dtype)[labels]
    likelihood = np.maximum(belief.sum(axis=1), 1e-30)
    belief /= likelihood[:, None]
    return belief, likelihood


def softmax(scores: Sequence[Floats], weights: npt.NDArray[np.float64]) -> Floats:
    """Probabilities from the weighted sum of scores, in their own precision."""
    total: Floats = scores[0] * scores[0].dtype.type(weights[0])
    for score, weight in zip(scores[1:], weights[1:], strict=True):
        total += score * score.dtype.type(weight)
    total -= total.max(axis=1, keepdims=True)
    np.exp(total, out=total)
    total /= total.sum(axis=1, keepdims=True)
    return total


def sums_by_label(values: Floats, labels: Codes, n_classes: int) -> npt.NDArray[np.float64]:
    """Row j is the sum of the rows of `values` that have label j."""
    sums = np.zeros((n_classes, values.shape[1]))
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    sums[present] = np.add.reduceat(values[order], starts, axis=0, dtype=np.float64)
    return sums


def symmetric(rate: float, n_classes: int) -> npt.NDArray[np.float64]:
    """T of labels that are wrong with probability `rate`, with all other classes alike."""
    off = rate / max(1, n_classes - 1)
    matrix = np.full((n_classes, n_classes), off)
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


def _newton_step(
    scores: Sequence[Floats],
    weights: npt.NDArray[np.float64],
    belief: Floats,
    probabilities: Floats,
    usual_weight: float,
) -> npt.NDArray[np.float64]:
    """The weights nearer to where the softmax agrees with the belief; the problem is convex and has two unknowns or so.

    One step is bounded, and weights stay from 0 to 60, since where classes are perfectly apart there is no optimum.
    """
    size, pull = len(belief), _PULL / usual_weight**2
    surplus = belief - probabilities
    mean = [(probabilities * score).sum(axis=1) for score in scores]
    slope = np.array([float((surplus * score).sum()) for score in scores]) / size
    slope -= pull * (weights - usual_weight)
    curvature = np.empty((len(scores), len(scores)))
    for a, first in enumerate(scores):
        for b, second in enumerate(scores[: a + 1]):
            spread = float((probabilities * first * second).sum()) - float(mean[a] @ mean[b])
            curvature[a, b] = curvature[b, a] = spread / size
    curvature[np.diag_indices(len(scores))] += pull + 1e-3
    step = np.clip(np.linalg.solve(curvature, slope), -5, 5)
    moved: npt.NDArray[np.float64] = np.clip(weights + step, 0, 60)
    return moved
