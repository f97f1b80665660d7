"""Noise that follows a rule, so that a class loses examples to few others only: seen, and made use of.

Neighbours vote with the labels that they were given. Where wrong labels may be any, the most frequent vote is the
class. Where class k loses 40 % of its examples to class k + 1 and has a dozen of them, it often is not; but that some
neighbours are labelled k says more then, for nobody of class k + 1 would be. So the frequencies v of given labels are
turned into how well each class explains them,

    Σ_j v_j log T_kj

which for symmetric noise is the vote again. T is found by going round: T from what is believed of each example, beliefs
from T. At first every class is held to the size that its label has. Else a class that lost more than half of its
examples would be taken for the other one, and nothing be left that could show the mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robustda.noise.likelihood import Codes, Explanation, explain, posterior, rows_of, softmax, sums_by_label

__all__ = ["Structure", "find_structure"]

Single = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

_HELD = (1.0, 1.0, 1.0, 0.5, 0.25, 0.0)  # how firmly the classes are held to their sizes, round by round
_SPARSE = 0.1  # of the Dirichlet distribution that rows of a structured T are thought to come from
_LEAST_GAIN = 0.025  # of log likelihood an example, for the rule to be believed
_FLOOR = 1e-4  # no label is impossible


@dataclass(frozen=True, eq=False)
class Structure:
    """A rule that the noise follows: T, and the weights of the scores that are seen through it."""

    transition: Values
    weights: Values

    def through(self, frequencies: Single) -> Single:
        """Scores (m, K) of how well each class explains given labels of these frequencies; as large as for votes."""
        n_classes = len(self.transition)
        rate = float(np.clip(1 - np.trace(self.transition) / n_classes, 1e-3, 1 - 1e-3))
        unit = max(1e-3, np.log((1 - rate) * (n_classes - 1) / rate))
        explained = (np.log(np.maximum(self.transition, _FLOOR)) / unit).astype(np.float32)
        shares = np.maximum(frequencies, 0)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-6)
        seen: Single = shares @ explained.T
        return seen


def find_structure(scores: Sequence[Single], sureness: Single, labels: Codes, plain: Explanation) -> Structure | None:
    """The rule, or None where noise that follows none explains the labels as well.

    ``scores`` are frequencies of given labels around each example, its own left out; ``plain`` what they say as votes.
    Two things must speak for a rule. What is thought wrong must lie together in few fields of T, which it does not
    under symmetric noise; and the rule must make the given labels likelier, which it does not where classes merely look
    alike.
    """
    n_classes = len(plain.transition)
    if n_classes < 3 or _for_few_fields(plain.joint) <= 0:
        return None
    found = Structure(plain.transition, plain.weights)
    probabilities = plain.probabilities
    for firmness in _HELD:
        belief = _held(posterior(probabilities, found.transition, labels)[0], labels, firmness)
        found = Structure(rows_of(sums_by_label(belief, labels, n_classes).T), found.weights)
        seen = [found.through(score) * sureness for score in scores]
        explained = explain(seen, labels, transition=found.transition)
        found, probabilities = Structure(found.transition, explained.weights), softmax(seen, explained.weights)
    return found if explained.log_likelihood - plain.log_likelihood > _LEAST_GAIN else None


def _for_few_fields(joint: Values) -> float:
    """How much likelier the wrong labels of each class are if they go to few others than if any is as good (log)."""
    from scipy.special import gammaln

    others = len(joint) - 1
    wrong = joint[~np.eye(len(joint), dtype=bool)].reshape(len(joint), others)
    totals = wrong.sum(axis=1)
    few = gammaln(others * _SPARSE) - gammaln(others * _SPARSE + totals)
    few = few + (gammaln(_SPARSE + wrong) - gammaln(_SPARSE)).sum(axis=1)
    return float((few + totals * np.log(others)).sum())


def _held(belief: Single, labels: Codes, firmness: float) -> Single:
    """The belief, moved so that classes have the sizes of their labels; with firmness 0 as it was."""
    if firmness == 0:
        return belief
    wanted = np.bincount(labels, minlength=belief.shape[1]) + 1.0
    wanted *= len(labels) / wanted.sum()
    for _ in range(5):
        factor = (wanted / (belief.sum(axis=0) + 1)) ** firmness
        belief = belief * factor.astype(belief.dtype)
        belief /= belief.sum(axis=1, keepdims=True)
    return belief
