"""Which classes does the target hold? Judged by features and predictions, without labels of the target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robustda.noise.vectors import class_means, unit

__all__ = ["Presence", "classes_there", "crowded", "lacking"]

Codes = npt.NDArray[np.int64]
Single = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

_MISSING = 0.15
"""A class is called missing when fewer than this share of the examples it should have resemble it. On Office-31 (six
tasks, 40 % wrong labels) with 5 or 15 of 31 classes taken out of the target, all of 223 such calls were right, and 46 %
of the classes were found. With no class missing, one was called so in 5 of 48 audits, 4 of them at 60 % noise."""
_AGREED = 0.7  # of the target on which a shift of the whole domain must make no difference
_TOLD = 0.5  # of a class's own examples that must resemble it more than any other
_ROUNDS = 20
_FEWEST = 4  # examples of a class that should be there; of fewer, none at all may be chance
_MANY_MORE, _TIMES = 0.15, 1.5
"""A class is crowded from so much more of the target on than of the source, and so many times as much. In 30 fits with
21 to 54 classes, skewed or lacking some here or there, none was; in 16 with two classes, the rarer of which had a third
to a fortieth of the source, 7 were, and most of what was predicted of them was wrong (before classes had kinds)."""
_DEVIATIONS = 3  # and more than chance would make of a small target


class Presence(NamedTuple):
    """What the target seems to hold of each class."""

    expected: Values
    """examples that it would have in the source's proportions"""
    resembling: Codes
    """examples that resemble the class most"""
    missing: Codes
    """the classes that it seems to lack"""


def classes_there(source: Single, believed: Codes, n_classes: int, target: Single) -> Presence:
    """Compare the target's features with the class means of the source, whose labels are those that are believed."""
    counts = np.bincount(believed, minlength=n_classes)
    expected = counts / len(believed) * len(target)
    a, b = unit(source), unit(target)
    middle = a.mean(axis=0)
    means = class_means(unit(a - middle), believed, n_classes)
    # The target's own mean allows for a shift, but lies elsewhere if classes are missing; the source's is the other
    # way round. What both say is believed, unless they say different things of most examples.
    by_shift, by_place = ((unit(b - centre) @ means.T).argmax(axis=1) for centre in (b.mean(axis=0), middle))
    resembling = np.maximum(*(np.bincount(by, minlength=n_classes) for by in (by_shift, by_place)))
    # Of a class whose own examples hardly resemble it nothing can be said.
    known = (unit(a - middle) @ means.T).argmax(axis=1) == believed
    told = np.bincount(believed[known], minlength=n_classes) >= _TOLD * counts
    agreed = float((by_shift == by_place).mean()) >= _AGREED
    few = (resembling < _MISSING * expected) & (expected >= _FEWEST)
    return Presence(expected, resembling.astype(np.int64), np.flatnonzero(few & told & agreed))


def crowded(predicted: Codes, shares: Values) -> Values:
    """The classes of which predictions find far more than the source has: rows of a class, its share here, and there.

    `shares` are those of the classes in the source. Whoever goes by clusters makes them of one size more readily than
    they are: where classes are few, much of a common one is taken for a rare one.

    >>> crowded(np.repeat([0, 1], [60, 40]), np.array([0.9, 0.1])).tolist()
    [[1.0, 0.1, 0.4]]
    """
    found = np.bincount(predicted, minlength=len(shares)) / len(predicted)
    chance = _DEVIATIONS * np.sqrt(shares * (1 - shares) / len(predicted))
    many = np.flatnonzero((found - shares > np.maximum(_MANY_MORE, chance)) & (found > _TIMES * shares))
    return np.stack([many.astype(np.float64), shares[many], found[many]], axis=1)


def lacking(probabilities: Values, shares: Values, most: int) -> Codes:
    """The classes that are hardly there by the class frequencies that explain these predictions best.

    ``probabilities`` (n, K) are calibrated and come from a model that takes the classes to be as frequent as ``shares``
    has them. The frequencies that make them likeliest are found by going round (Saerens, Latinne and Decaestecker,
    Adjusting the Outputs of a Classifier to New a Priori Probabilities, Neural Computation 2002). They see more than
    the means do, but where all classes are there they are at times wrong about one, and where predictions are poor
    about nearly all: ask for them where the means have found some missing, and for no more than `most`, the surest
    first.
    """
    usual = np.maximum(shares, 1e-12)
    found = usual.copy()
    for _ in range(_ROUNDS):
        weighted = probabilities * (found / usual)
        found = (weighted / np.maximum(weighted.sum(axis=1, keepdims=True), 1e-300)).mean(axis=0)
    few = np.flatnonzero((found < _MISSING * shares) & (shares * len(probabilities) >= _FEWEST))
    surest: Codes = few[np.argsort((found / usual)[few], kind="stable")][:most]
    return np.sort(surest)
