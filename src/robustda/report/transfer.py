"""Will what is learned on the source carry over to the target? Measured on features, without labels of the target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robustda.expect import Expected, expected_accuracy, opinions
from robustda.noise.vectors import stratified_folds
from robustda.noise.witnesses import describe
from robustda.overlap import plain_words
from robustda.presence import classes_there
from robustda.theory import Terms, fit_head, measure_terms

__all__ = ["Transfer", "measure_transfer"]

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Single = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

_MOST = 4_000  # examples of each domain that are learned from: more change little
_FOLDS = 3


@dataclass(frozen=True, eq=False)
class Transfer:
    """How far apart source and target are, what to expect of a model there, and what the target seems to hold."""

    terms: Terms
    """the terms of the paper's bound"""
    plain: Expected
    """accuracy that a classifier of the trusted examples should have on the target as it is"""
    adapted: Expected
    """the same for one that is adapted to the target: concord, which takes seconds"""
    expected: Values
    """examples of each class that the target would have in the source's proportions"""
    resembling: Codes
    """examples of the target that resemble each class most"""
    missing: Codes
    """classes that seem to be missing in the target"""

    @property
    def distance(self) -> float:
        """Proxy A-distance, from 0 (nobody can tell the domains apart) to 2 (a straight line separates them)."""
        return self.terms.divergence.value

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval."""
        return self.terms.divergence.interval


def measure_transfer(
    source: Single,
    believed: Codes,
    n_classes: int,
    target: Single,
    *,
    trusted: Flags | None = None,
    proxy: Flags | None = None,
    given: Codes | None = None,
    corrupted: Flags | None = None,
    seed: int = 0,
) -> Transfer:
    """Compare features of source and target.

    `believed` are the source's labels as far as they are believed, `trusted` the examples to learn from, `proxy` those
    of them with sound features. A mask that leaves fewer than two classes is passed over. `given` are the labels as
    they were given, by which it is seen whether classes overlap, among those that are not `corrupted`.
    """
    known = _enough(trusted, believed)
    near = known if proxy is None or not (proxy & known).any() else proxy & known
    told = None if given is None else (given, np.ones(len(given), dtype=bool) if corrupted is None else ~corrupted)
    plain, adapted = _expectations(source, believed, n_classes, target, known, told, seed)
    presence = classes_there(source, believed, n_classes, target)
    terms = measure_terms(source, believed, target, n_classes=n_classes, trusted=known, proxy=near, seed=seed)
    return Transfer(terms, plain, adapted, *presence)


def _expectations(
    source: Single,
    believed: Codes,
    n_classes: int,
    target: Single,
    known: Flags,
    told: tuple[Codes, Flags] | None,
    seed: int,
) -> tuple[Expected, Expected]:
    """Of a plain linear classifier, and of concord. What is told of the source: labels, and of whom to believe it."""
    rng = np.random.default_rng(seed)
    rows, others = _some(np.flatnonzero(known), rng), _some(np.arange(len(target)), rng)
    x, labels, z = source[rows], believed[rows], target[others]
    views = opinions(x, labels, z, n_classes, seed=seed)
    both = describe(np.concatenate([x, z]), seed)
    at_home, away = both[: len(x)], both[len(x) :]
    fold = stratified_folds(labels, min(_FOLDS, len(labels)), rng)
    unseen = np.empty((len(x), n_classes))
    for number in range(int(fold.max()) + 1):
        learn = fold != number
        unseen[~learn] = _softmax(fit_head(at_home[learn], labels[learn], n_classes).scores(at_home[~learn]))
    plain = _softmax(fit_head(at_home, labels, n_classes).scores(away))
    words = None
    if told is not None:
        given, sound = told
        words = plain_words(source[sound], given[sound], z, n_classes, seed=seed)
    return (
        expected_accuracy(plain, views.values(), plain=words, source_probabilities=unseen, source_labels=labels),
        expected_accuracy(views["concord"], views.values(), plain=words),
    )


def _enough(trusted: Flags | None, believed: Codes) -> Flags:
    everybody = np.ones(len(believed), dtype=bool)
    return everybody if trusted is None or len(np.unique(believed[trusted])) < 2 else trusted


def _some(rows: Codes, rng: np.random.Generator) -> Codes:
    return rows if len(rows) <= _MOST else np.sort(rng.choice(rows, _MOST, replace=False))


def _softmax(scores: Single) -> Values:
    shares: Values = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
