"""The first two terms of proposition 2.1: the source risk, and how different two domains are, in three ways."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robustda.errors import DataError
from robustda.noise.vectors import stratified_folds
from robustda.theory.heads import MARGIN, NORM, LinearHead, check_head, disagreeing_head, fit_head, margin_losses

__all__ = ["Measured", "divergence", "margin_discrepancy", "proxy_discrepancy", "source_risk"]

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Single = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

_FOLDS = 3
_SIGMAS = 1.96


@dataclass(frozen=True)
class Measured:
    """A share from 0 to 1 (a divergence: from 0 to 2), and what chance among the examples leaves open."""

    value: float
    interval: tuple[float, float]
    """95 %"""
    fitted: float
    """the same on the examples that were learned from; what it is beyond `value` is memorised, and not there"""


def source_risk(
    x: Single, labels: Codes, n_classes: int, *, norm: float = NORM, margin: float = MARGIN, seed: int = 0
) -> tuple[Measured, Measured]:
    """ε_Q(h) on examples that were not learned from: as the share of mistakes, and as margin loss Φ_ρ."""
    check_head(norm, margin)
    fold = stratified_folds(labels, min(_FOLDS, len(labels)), np.random.default_rng(seed))
    losses, seen = np.zeros((2, len(x))), []
    for number in range(int(fold.max()) + 1):
        learn = fold != number
        if not learn.any():
            raise DataError("one example alone cannot be learned from and judged: give more that are trusted")
        scores = fit_head(x[learn], labels[learn], n_classes, norm=norm).scores(x)
        both = np.stack([scores.argmax(axis=1) != labels, margin_losses(scores, labels, margin)])
        losses[:, ~learn] = both[:, ~learn]
        seen.append(both[:, learn].mean(axis=1))
    fitted = np.mean(seen, axis=0)
    error, risk = (
        _measured(float(values.mean()), float(values.std()) / math.sqrt(len(x)), float(known))
        for values, known in zip(losses, fitted, strict=True)
    )
    return error, risk


def margin_discrepancy(
    head: LinearHead, source: Single, target: Single, *, margin: float = MARGIN, seed: int = 0
) -> Measured:
    """MDD (definition 3.3): the most by which some f' departs from f on the target but not on the source.

    f' is trained as in the adversarial network and judged by the margin loss on examples that it has not seen.
    """
    check_head(head.norm, margin)
    rng = np.random.default_rng(seed)
    return _discrepancy(head, (source, target), (_folds(len(source), rng), _folds(len(target), rng)), margin)


def proxy_discrepancy(
    head: LinearHead, source: Single, proxy: Flags, target: Single, *, margin: float = MARGIN, seed: int = 0
) -> tuple[Measured, Measured]:
    """The halves of PMD (definition 3.4): MDD from the noisy source to the proxy, and from the proxy to the target.

    Each has its own f', as the definition has two suprema; the adversarial network makes do with one. `proxy` is a
    mask: its examples are some of the source's, so they are in the same fold in both roles.
    """
    check_head(head.norm, margin)
    if not proxy.any():
        raise DataError("the proxy is empty: give a mask with the examples that stand for it")
    rng = np.random.default_rng(seed)
    at_home, away, near = _folds(len(source), rng), _folds(len(target), rng), source[proxy]
    second = _discrepancy(head, (near, target), (at_home[proxy], away), margin)
    if proxy.all():
        return Measured(0.0, (0.0, 0.0), 0.0), second
    first = _discrepancy(head, (source, near), (at_home, at_home[proxy]), margin)
    return first, second


def divergence(source: Single, target: Single, *, seed: int = 0) -> Measured:
    """The H-divergence (eq. 4) as proxy A-distance, 2(1 − 2ε); features as `noise.witnesses.describe` returns them.

    ε is the error of a linear domain classifier on examples that it has not seen; both domains count alike.
    """
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(seed)
    domain = np.repeat(np.array([0, 1]), [len(source), len(target)])
    x = np.concatenate([source, target]) * np.float32(math.sqrt(source.shape[1]))
    fold = stratified_folds(domain, min(5, len(domain)), rng)
    right, seen = np.zeros(len(domain), dtype=bool), [0.0]
    for number in range(int(fold.max()) + 1):
        learn = fold != number
        if len(np.unique(domain[learn])) < 2:
            continue
        model = LogisticRegression(C=0.01, class_weight="balanced", max_iter=200).fit(x[learn], domain[learn])
        said = model.predict(x) == domain
        right[~learn] = said[~learn]
        seen.append(float(_a_distance(*(said[learn & (domain == which)].mean() for which in (0, 1)))))
    parts = [right[domain == which] for which in (0, 1)]
    draws = [part[rng.integers(0, len(part), (200, len(part)))].mean(axis=1) for part in parts]
    low, high = np.quantile(_a_distance(*draws), [0.025, 0.975])
    found = float(_a_distance(*(part.mean() for part in parts)))
    return Measured(found, (float(min(low, found)), float(max(high, found))), float(np.mean(seen[1:] or seen)))


def _discrepancy(
    head: LinearHead, domains: tuple[Single, Single], folds: tuple[Codes, Codes], margin: float
) -> Measured:
    """sup over f' of disp(second) − disp(first), f' learned on two thirds and read off on the last; never below 0."""
    classes = [head.predict(x) for x in domains]
    unseen, seen = [np.zeros(len(x)) for x in domains], []
    for number in range(_FOLDS):
        learn = [fold != number for fold in folds]
        if not all(some.any() for some in learn):
            continue
        first, second = (x[some] for x, some in zip(domains, learn, strict=True))
        other = disagreeing_head(head, first, second, margin)
        gone = []
        for which in (0, 1):
            losses = margin_losses(other.scores(domains[which]), classes[which], margin)
            unseen[which][~learn[which]] = losses[~learn[which]]
            gone.append(float(losses[learn[which]].mean()))
        seen.append(gone[1] - gone[0])
    value = float(unseen[1].mean() - unseen[0].mean())
    error = math.sqrt(sum(float(losses.var()) / len(losses) for losses in unseen))
    return _measured(max(0.0, value), error, max(0.0, float(np.mean(seen or [0.0]))))


def _measured(value: float, error: float, fitted: float) -> Measured:
    low, high = value - _SIGMAS * error, value + _SIGMAS * error
    return Measured(value, (max(0.0, low), min(1.0, high)), fitted)


def _folds(size: int, rng: np.random.Generator) -> Codes:
    return stratified_folds(np.zeros(size, dtype=np.int64), _FOLDS, rng)


def _a_distance(right_source: npt.ArrayLike, right_target: npt.ArrayLike) -> Values:
    error = 1 - (np.asarray(right_source) + np.asarray(right_target)) / 2
    distance: Values = np.clip(2 * (1 - 2 * error), 0, 2)
    return distance
