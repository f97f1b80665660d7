"""Two witnesses of an example's class, neither of which ever saw its label: a linear fit and nearest neighbours.

Labels are cleaned before they are learned from, and without a peek at the example to be judged: in each fold the
others are judged among themselves first, by leaving one out, and the witnesses then learn what was believed of them.

Where classes look alike, labels may be read too boldly (`likelihood.py`): then those who learned from what was believed
say less well which label an example has that they have not seen. So they learn from the cautious reading beside it,
and that one is taken where its labels are clearly better met. Noise that strikes all alike does so in both.

Where each of many classes looks like a few others, it may even seem that the noise follows a rule (`structure.py`).
That is believed only if those who learned by the rule meet about as many labels as those who know of none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from robustda.noise.likelihood import Codes, Explanation, Floats, explain, posterior, softmax
from robustda.noise.structure import Structure, find_structure
from robustda.noise.trees import Trees
from robustda.noise.vectors import stratified_folds, unit

__all__ = ["Description", "Testifying", "Testimony", "describe", "hear_witnesses", "largest", "nearest"]

Single = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

_WIDTH = 256  # principal directions kept; half of them lose a little accuracy on Office-31, more gain none
_POOL = 20_000  # examples among which neighbours are sought: more change little, and cost grows with them
_BLOCK, _GROUP = 256, 32  # rows compared at a time; columns looked at together
_SOLVED = 2048  # right-hand sides at a time
_NEIGHBOURS = 20
_FIRST_RIDGE, _SECOND_RIDGE = 3.0, 1.0  # a firmer fit while the labels are noisy; a very firm one is the class means
_CLEARLY = 2.5  # standard deviations by which more unseen labels are met, for another reading to be taken
_TYPICAL = 0.2  # how much less sure of an example that is one standard deviation less like its neighbours than others


@dataclass(frozen=True)
class Testimony:
    """What was said of every example: scores (m, K) by each witness, and the model that weighs them."""

    scores: tuple[Single, ...]
    explanation: Explanation
    neighbours: npt.NDArray[np.int64]
    similarity: Single
    """cosine of each of those neighbours, the nearest first"""
    by_rule: bool
    """whether the noise follows a rule (`structure.py`)"""
    cautious: bool
    """whether labels are read cautiously, since unseen ones are better met so"""
    bold: Explanation
    """the other reading's model, if they are, else the same: it tells who resembles no class, which a cautious one,
    unsure of hard examples, would say of too many"""
    other: Explanation | None = None
    """what follows from the reading that was not taken, if it was asked for and there are two"""


def hear_witnesses(
    x: Single,
    labels: Codes,
    n_classes: int,
    *,
    trees: Trees | None = None,
    both: bool = False,
    folds: int = 10,
    seed: int = 0,
) -> Testimony:
    """Let both witnesses judge every example of `x`, which is what `describe` returns.

    `trees` are a third, unless the noise follows a rule that explains the labels better than all three do: they say
    which labels are frequent, not what they come of. In the end they have learned what the three found first. With
    `both` it is also worked out what the reading that is not taken makes of the labels.
    """
    size = len(labels)
    folds = min(folds, size)
    rng = np.random.default_rng(seed)
    near, similarity = nearest(x, min(size - 1, _NEIGHBOURS + _NEIGHBOURS // 2), rng)
    sureness = _sureness(similarity)
    everyone = np.ones(size, dtype=bool)
    given = _one_hot(labels, n_classes)
    first = _leaving_one_out(x, given, everyone, near, similarity, _FIRST_RIDGE)
    third: list[Single] = [] if trees is None else [trees.learn(labels) * sureness]
    readings = _ways_to_read(first, sureness, third, labels)
    held_out = _held_out(x, given, near, similarity, sureness, third, readings, stratified_folds(labels, folds, rng))
    met = [(fit + vote).argmax(axis=1) == labels for fit, vote in held_out]
    by_rule = len(met) > _RULE and not any(_clearly_more(met[way], than=met[_RULE]) for way in (_BOLD, _CAUTIOUS))
    cautious = not by_rule and _clearly_more(met[_CAUTIOUS], than=met[_BOLD])
    taken, left = (_RULE, _BOLD) if by_rule else (_CAUTIOUS, _BOLD) if cautious else (_BOLD, _CAUTIOUS)
    if by_rule:
        third = []
    elif trees is not None:
        rough = readings[taken].explanation
        belief = posterior(rough.probabilities, rough.transition, labels)[0]
        third = [trees.learn(belief.argmax(axis=1), belief.max(axis=1)) * sureness]
    everything = (*(score * sureness for score in held_out[taken]), *third)
    explanation = explain(everything, labels, cautious=cautious)
    bold = explain(everything, labels) if cautious else explanation
    other = None
    if both and not by_rule:
        instead = (*(score * sureness for score in held_out[left]), *third)
        other = explain(instead, labels, cautious=not cautious)
    return Testimony(everything, explanation, near, similarity, by_rule, cautious, bold, other)


_BOLD, _CAUTIOUS, _RULE = range(3)  # where the readings stand


@dataclass(frozen=True)
class _Reading:
    """A way to tell from scores and labels which class each example is of."""

    explanation: Explanation
    rule: Structure | None = None

    def belief(self, scores: Sequence[Single], sureness: Single, third: Sequence[Single], labels: Codes) -> Floats:
        """What it makes of examples for which witnesses have these scores; a rule does not hear the `third`."""
        if self.rule is not None:
            scores, third = [self.rule.through(score) for score in scores], []
        probabilities = softmax([*(score * sureness for score in scores), *third], self.explanation.weights)
        return posterior(probabilities, self.explanation.transition, labels)[0]


def _ways_to_read(scores: Sequence[Single], sureness: Single, third: Sequence[Single], labels: Codes) -> list[_Reading]:
    """Boldly, cautiously and, if the noise seems to follow a rule, by that."""
    heard = [*(score * sureness for score in scores), *third]
    bold = explain(heard, labels)
    readings = [_Reading(bold), _Reading(explain(heard, labels, cautious=True))]
    rule = find_structure(scores, sureness, labels, bold)
    if rule is not None:
        readings.append(_Reading(replace(bold, transition=rule.transition, weights=rule.weights), rule))
    return readings


def _held_out(
    x: Single,
    given: Single,
    near: npt.NDArray[np.int64],
    similarity: Single,
    sureness: Single,
    third: Sequence[Single],
    readings: Sequence[_Reading],
    fold: npt.NDArray[np.int64],
) -> list[tuple[Single, Single]]:
    """By each reading, what both witnesses say of every example once they have learned what it believes of others."""
    labels = given.argmax(axis=1)
    found = [(np.empty_like(given), np.empty_like(given)) for _ in readings]
    for number in range(fold.max() + 1):
        learn, judge = fold != number, np.flatnonzero(fold == number)
        scores = _leaving_one_out(x, given, learn, near, similarity, _FIRST_RIDGE)
        solver = _solver(x[learn], _SECOND_RIDGE)
        for reading, (fit, vote) in zip(readings, found, strict=True):
            believed = np.zeros_like(given)
            believed[learn] = reading.belief(scores, sureness[learn], [score[learn] for score in third], labels[learn])
            fit[judge] = x[judge] @ (solver @ believed[learn])
            vote[judge] = _votes(near[judge], similarity[judge], believed, learn)
    return found


def _clearly_more(met: Flags, than: Flags) -> bool:
    """Whether clearly more labels are met by the one way than by the other."""
    gained, lost = int((met & ~than).sum()), int((than & ~met).sum())
    return bool(gained - lost > _CLEARLY * np.sqrt(gained + lost))


def describe(features: npt.ArrayLike, seed: int = 0) -> Single:
    """Features centred, at unit length, and no more than 256 of them: the main directions, by random projection."""
    return Description(features, seed).of(features)


class Description:
    """How `describe` saw some examples, to see others in the same way."""

    def __init__(self, features: npt.ArrayLike, seed: int = 0) -> None:
        x = _rows(features)
        self.mean = x.mean(axis=0)
        self.directions = _directions(self._centred(x), seed) if x.shape[1] > _WIDTH else None

    def of(self, features: npt.ArrayLike) -> Single:
        x = self._centred(_rows(features))
        return x if self.directions is None else unit(x @ self.directions.T)

    def _centred(self, x: Single) -> Single:
        centred: Single = x - self.mean
        return unit(centred, out=centred)


def nearest(x: Single, k: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], Single]:
    """The k nearest of the others by cosine, and their cosines; in blocks, so memory does not grow with m²."""
    size = len(x)
    pool = np.arange(size) if size <= _POOL else np.sort(rng.choice(size, _POOL, replace=False))
    place = np.full(size, -1)
    place[pool] = np.arange(len(pool))
    near, similarity = np.empty((size, k), dtype=np.int64), np.empty((size, k), dtype=np.float32)
    others = x if size <= _POOL else x[pool]
    for start in range(0, size, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, size))
        cosine = x[rows] @ others.T
        own = place[rows] >= 0
        cosine[own, place[rows[own]]] = -np.inf
        best, similarity[rows] = largest(cosine, k)
        near[rows] = pool[best]
    return near, similarity


def largest(values: Single, k: int) -> tuple[npt.NDArray[np.int64], Single]:
    """The columns of each row's k largest values, the largest first, and these values."""
    if values.shape[1] > max(4096, _GROUP * k):
        # Whoever is among the k largest is so within the k groups whose largest values are largest: to look at the
        # groups first, then at the members of k of them, takes a tenth of the time.
        groups = values.shape[1] // _GROUP
        rest = np.arange(groups * _GROUP, values.shape[1])
        tops = values[:, : groups * _GROUP].reshape(len(values), _GROUP, groups).max(axis=1)
        chosen = np.argpartition(tops, -k, axis=1)[:, -k:]
        members = (chosen[:, :, None] + groups * np.arange(_GROUP)).reshape(len(values), -1)
        columns = np.concatenate([members, np.broadcast_to(rest, (len(values), len(rest)))], axis=1)
        best, value = largest(np.take_along_axis(values, columns, axis=1), k)
        return np.take_along_axis(columns, best, axis=1), value
    best = np.argpartition(values, -k, axis=1)[:, -k:]
    value = np.take_along_axis(values, best, axis=1)
    order = np.argsort(-value, axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1), np.take_along_axis(value, order, axis=1)


class Testifying:
    """Both witnesses once they have learned from `x` what is believed of those in `learn`: they judge strangers."""

    def __init__(self, x: Single, believed: Single, learn: Flags) -> None:
        chosen = slice(None) if len(x) <= _POOL else np.arange(_POOL) * len(x) // _POOL
        self.pool, self.believed, self.learn = x[chosen], believed[chosen], learn[chosen]
        self.coefficients = _solver(x[learn], _SECOND_RIDGE) @ believed[learn]

    def __call__(self, x: Single) -> tuple[tuple[Single, ...], Single, Flags]:
        """Scores by the linear fit and by neighbours, the factor that is in them for examples that are unlike others,
        and who has neighbours that are not in `learn` for the most."""
        k = min(len(self.pool), _NEIGHBOURS + _NEIGHBOURS // 2)
        near, similarity = np.empty((len(x), k), dtype=np.int64), np.empty((len(x), k), dtype=np.float32)
        for start in range(0, len(x), _BLOCK):
            block = slice(start, start + _BLOCK)
            near[block], similarity[block] = largest(x[block] @ self.pool.T, k)
        sureness = _sureness(similarity)
        votes = _votes(near, similarity, self.believed, self.learn)
        odd: Flags = self.learn[near].mean(axis=1) < 0.5
        return (x @ self.coefficients * sureness, votes * sureness), sureness, odd


def _sureness(similarity: Single) -> Single:
    """A factor for each example's scores: below 1 for one that is unlike all others, of which nobody can be sure."""
    typical = similarity[:, :10].mean(axis=1)
    spread = float(typical.std())
    if spread < 1e-6:
        return np.ones((len(typical), 1), dtype=np.float32)
    standard = np.clip((typical - typical.mean()) / spread, -2, 2)
    factor: Single = np.exp(_TYPICAL * standard)[:, None].astype(np.float32)
    return factor


def _leaving_one_out(
    x: Single,
    targets: Single,
    learn: Flags,
    near: npt.NDArray[np.int64],
    similarity: Single,
    ridge: float,
) -> tuple[Single, Single]:
    """Scores of the examples in `learn`, each from the others in it; for the linear fit that has a closed form."""
    rows, wanted = x[learn], targets[learn]
    solver = _solver(rows, ridge)
    own = np.einsum("ij,ji->i", rows, solver)[:, None]
    fit = (rows @ (solver @ wanted) - own * wanted) / np.maximum(1 - own, 1e-3)
    return fit, _votes(near[learn], similarity[learn], targets, learn)


def _solver(x: Single, ridge: float) -> Single:
    """(XᵀX + ridge)⁻¹Xᵀ: times the targets it gives the coefficients of the linear fit."""
    square = x.T @ x
    square[np.diag_indices(len(square))] += ridge
    solver: Single = np.empty((x.shape[1], len(x)), dtype=np.float32)
    for start in range(0, len(x), _SOLVED):  # NumPy solves in double precision, on copies
        solver[:, start : start + _SOLVED] = np.linalg.solve(square, x[start : start + _SOLVED].T)
    return solver


def _votes(near: npt.NDArray[np.int64], similarity: Single, targets: Single, learn: Flags) -> Single:
    """The neighbours' mean target, the nearer counting more; one neighbour at a time keeps the temporaries small."""
    votes = np.zeros((len(near), targets.shape[1]), dtype=np.float32)
    heard, weight = np.zeros(len(near), dtype=np.int64), np.zeros(len(near), dtype=np.float32)
    for column in range(near.shape[1]):
        neighbour = near[:, column]
        speaks = learn[neighbour] & (heard < _NEIGHBOURS)
        say = np.where(speaks, np.maximum(similarity[:, column], 1e-3) ** 3, 0).astype(np.float32)
        votes += say[:, None] * targets[neighbour]
        heard += speaks
        weight += say
    votes /= np.maximum(weight, 1e-9)[:, None]
    return votes


def _rows(features: npt.ArrayLike) -> Single:
    x = np.asarray(features, dtype=np.float32)
    return x.reshape(len(x), -1)


def _directions(x: Single, seed: int) -> Single:
    """The main directions of the rows, by random projection."""
    rng = np.random.default_rng(seed)
    width = min(_WIDTH, len(x))
    basis = x @ rng.standard_normal((x.shape[1], min(width + 20, len(x))), dtype=np.float32)
    for _ in range(2):
        basis = np.linalg.qr(basis)[0]
        basis = x @ (x.T @ basis)
    basis = np.linalg.qr(basis)[0]
    directions: Single = np.linalg.svd(basis.T @ x, full_matrices=False)[2][:width]
    return directions


def _one_hot(labels: Codes, n_classes: int) -> Single:
    targets = np.zeros((len(labels), n_classes), dtype=np.float32)
    targets[np.arange(len(labels)), labels] = 1
    return targets
