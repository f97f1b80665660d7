"""Can these classes be told apart at all? Asked of witnesses at home, where there are labels, and what they say away.

    plain = plain_words(source, labels, target, n_classes)
    plain.overlap      # 0 where classes are told apart well at home, 1 where they hardly are
    plain.away         # (n, K) what the same witnesses say of the target, as sure as they should be

Where each class lies by itself, classifiers that disagree are wrong, and clusters of the target are classes. Where
classes overlap (a word that may be an act or an event, a drawing that may be of either kind) all classifiers agree on
one of them and are wrong together, and clusters are something else. No agreement shows that on the target, but the
source does: witnesses (`noise/witnesses.py`) that are asked for examples which they have not seen are not sure of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robustda.errors import DataError
from robustda.noise.checks import check_features, check_labels
from robustda.noise.likelihood import explain, posterior, softmax
from robustda.noise.strangers import sample_rows
from robustda.noise.vectors import unit
from robustda.noise.witnesses import Description, Testifying, hear_witnesses

__all__ = ["PlainWords", "plain_words"]

Codes = npt.NDArray[np.int64]
Single = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

_HARD, _EASY = 0.70, 0.80
"""How sure witnesses are at home, on average, where classes overlap, and from where on they do not. On Office-31 it is
.84 to .97 with up to 40 % wrong labels, .78 to .86 with 60 %; of drawings, icons and nouns in words .48 to .74."""
_SENSELESS = 0.65  # of the labels that seem wrong
_FEWEST = 10  # examples of a class on average: of fewer, who is not shown one has hardly any left to know the class by
_MOST, _OF_EACH = 5_000, 20  # source examples that are asked, so many or so many of each class: more change little
_BLOCK = 4096  # target examples at a time


@dataclass(frozen=True, eq=False)
class PlainWords:
    """What witnesses say who have adapted to nothing."""

    sure: float
    """how sure they are on average of source examples that they have not seen, which is about how often they are right
    there: their probabilities are fitted to the labels together with the noise"""
    away: Values
    """(n, K) their probabilities on the target"""

    @property
    def overlap(self) -> float:
        """From 0, classes are told apart well, to 1, they overlap."""
        return float(np.clip((_EASY - self.sure) / (_EASY - _HARD), 0, 1))

    def likely(self, classes: npt.ArrayLike) -> float:
        """How likely these are to be the target's classes, one for each example, on average."""
        return float(self.away[np.arange(len(self.away)), np.asarray(classes)].mean())


def plain_words(
    source: npt.ArrayLike, labels: npt.ArrayLike, target: npt.ArrayLike, n_classes: int | None = None, *, seed: int = 0
) -> PlainWords | None:
    """Ask witnesses who learn from the source's labels as they were given, wrong ones among them.

    Both domains are centred, each by its own mean. What classes have in common may be taken for labels that were
    exchanged, or the other way round, so the labels are read boldly and cautiously (`noise/likelihood.py`), and both
    count alike; but noise that follows a rule, or is clearly better explained cautiously, is read in that one way. None
    where there is too little to learn from, or so much of it seems wrong that nobody can be sure of anything, whether
    classes overlap or not.
    """
    codes, size = check_labels(labels, n_classes)
    x, z = check_features(source, len(codes)), check_features(target, len(np.asarray(target)))
    if x.shape[1] != z.shape[1]:
        raise DataError(f"the source has {x.shape[1]} features and the target {z.shape[1]}: make both in the same way")
    most = max(_MOST, _OF_EACH * size)
    if len(x) > most:
        rows = sample_rows(codes, most, np.random.default_rng(seed))
        x, codes = x[rows], codes[rows]
    if len(x) < _FEWEST * size or len(np.unique(codes)) < 2:
        return None
    here, there = (_centred(domain) for domain in (x, z))
    some = (domain[:: -(-len(domain) // _BLOCK)] for domain in (here, there))
    look = Description(np.concatenate(list(some)), seed)
    here = look.of(here)
    testimony = hear_witnesses(here, codes, size, seed=seed)
    readings = [testimony.explanation]
    if not (testimony.by_rule or testimony.cautious):
        readings.append(explain(testimony.scores, codes, cautious=True))
    own, sure, away = 0.0, 0.0, np.zeros((len(z), size))
    for explained in readings:
        believed = posterior(explained.probabilities, explained.transition, codes)[0].astype(np.float32)
        own += float(believed[np.arange(len(codes)), codes].mean()) / len(readings)
        sure += float(explained.probabilities.max(axis=1).mean()) / len(readings)
        witnesses = Testifying(here, believed, np.ones(len(here), dtype=bool))
        for start in range(0, len(z), _BLOCK):
            block = slice(start, start + _BLOCK)
            away[block] += softmax(witnesses(look.of(there[block]))[0], explained.weights) / len(readings)
    return None if own < 1 - _SENSELESS else PlainWords(sure, away)


def _centred(domain: npt.NDArray[np.generic]) -> Single:
    x = unit(np.array(domain, dtype=np.float32))
    x -= x.mean(axis=0)
    return unit(x, out=x)
