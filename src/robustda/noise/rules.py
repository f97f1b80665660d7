"""Labels that are wrong by a rule: a class that loses a good part of its examples to one other class.

Wrong labels that may be any hardly lie together. Where they do, and nearly half of a class is concerned, the data alone
do not tell which of the two names is the right one: whoever made the labels has to say.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Rule", "find_rules"]

_SHARE = 0.2  # of a class that has one and the same wrong label
_TOGETHER = 0.5  # of its wrong labels that are this one
_CHANCE = 1e-3  # that any class is named where wrong labels follow no rule
_FEWEST = 5  # examples; of small classes two or three are often labelled alike by chance


class Rule(NamedTuple):
    """So many examples that seem to be of one class are labelled as another."""

    true: int
    given: int
    examples: int
    share: float
    """of the class"""


def find_rules(believed: npt.NDArray[np.int64], given: npt.NDArray[np.int64], n_classes: int) -> list[Rule]:
    """The rules by which labels seem to be wrong, the one that takes the largest part of a class first.

    Of two classes there is never one: wrong labels have no choice.

    On Office-31 (three domains, one draw each) none was found with right labels, with 20 to 80 % of all labels wrong,
    or with half of the classes 70 % wrong. With 40 % of each class labelled as the next one it was 31, 18 and 29 of 31
    classes, and where three pairs of classes had 60 % of their labels exchanged 6, 1 and 5 of these six.

    >>> find_rules(np.repeat(np.arange(5), 20), np.r_[np.repeat([0, 1], [12, 28]), np.repeat([2, 3, 4], 20)], 5)
    [Rule(true=0, given=1, examples=8, share=0.4)]
    """
    from scipy.special import bdtrc  # scipy.stats has the same by a better name, and takes half a second to load

    joint = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(joint, (believed, given), 1)
    sizes, labels = joint.sum(axis=1), joint.sum(axis=0)
    np.fill_diagonal(joint, 0)
    most, counts, wrong = joint.argmax(axis=1), joint.max(axis=1), joint.sum(axis=1)
    found = (counts >= _FEWEST) & (counts >= _SHARE * sizes) & (counts >= _TOGETHER * wrong)
    # Of few classes, or where one is much more frequent than the others, even wrong labels that follow no rule agree.
    usual = np.maximum(1 / max(1, n_classes - 1), labels[most] / np.maximum(1, labels.sum() - labels))
    named = np.flatnonzero(found)
    chance = bdtrc(counts[named] - 1.0, wrong[named], np.minimum(1, usual[named]))
    named = named[chance < _CHANCE / n_classes]
    rules = [Rule(int(k), int(most[k]), int(counts[k]), float(counts[k] / sizes[k])) for k in named]
    return sorted(rules, key=lambda rule: -rule.share)
