"""The audit in sentences that need no explanation; the most important one first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from robustda.data.labels import label_key

if TYPE_CHECKING:
    from robustda.expect import Expected
    from robustda.report.findings import Audit

__all__ = ["headline", "percent"]

CLEAN = 0.05
"""Up to this rate the data look clean: the published labels of Office-31's amazon come to .04, other clean data to .02,
and at so low a rate mistakes cannot be told from examples that are merely hard."""
_APART = 0.05  # estimators further apart than this are not to be relied on
_WIDE = 0.3  # an interval of so many points says little
_SPACE = "\N{NO-BREAK SPACE}"
_SEVERAL = 0.01  # examples that are like no class are worth a sentence from this share on
_STRIKING = 0.15  # a class with so many wrong labels at least is named even if all others are clean


def headline(found: Audit) -> list[str]:
    """What to tell a person who reads no further."""
    said = [_about_labels(found), *_about_strangers(found)]
    if found.unlike.mean() > max(CLEAN, found.rate):
        said.reverse()
    return [*said, *_cautions(found), *_about_examples(found), *_about_target(found)]


def percent(share: float) -> str:
    """``19 %``, with a space that does not break.

    >>> percent(0.19).replace(chr(0xa0), " "), percent(0.004).replace(chr(0xa0), " ")
    ('19 %', '0.4 %')
    """
    value = 100 * share
    digits = 1 if 0.05 <= value < 0.95 else 0
    return f"{value:.{digits}f}{_SPACE}%"


def _about_labels(found: Audit) -> str:
    best, names = found.noise.combined, _names(found)
    low, high = best.interval
    worst = np.argsort(-best.rates, kind="stable")
    low_by_class = best.intervals[:, 0]
    if best.overall <= CLEAN:
        striking = [k for k in worst if low_by_class[k] > _STRIKING and not found.noise.pooled[k]][:3]
        how_many = (
            f"about {percent(best.overall)} of the labels look wrong" if found.issues.any() else "no label looks wrong"
        )
        if not striking:
            look = "Among what resembles a class," if found.unlike.mean() > CLEAN else "The data look clean:"
            return f"{look} {how_many} ({_range(low, high)})."
        rates = joined([f"{percent(best.rates[k])} of the labels of {names[k]}" for k in striking])
        return f"Most of the data look clean ({how_many}), but about {rates} look wrong."
    said = f"About {percent(best.overall)} of the labels look wrong ({_range(low, high)})"
    clear = (k for k in worst if not found.noise.pooled[k])
    standing_out = list(takewhile(lambda k: low_by_class[k] > best.overall, clear))[:3]
    if not standing_out:
        return f"{said}, about equally in all classes."
    are = "is" if len(standing_out) == 1 else "are"
    return f"{said}: {joined([names[k] for k in standing_out])} {are} worst."


def _about_strangers(found: Audit) -> list[str]:
    count, share = int(found.unlike.sum()), float(found.unlike.mean())
    if share < _SEVERAL:
        return []
    what = "image" if found.source.kind == "images" else "example"
    resemble = f"{what} resembles" if count == 1 else f"{what}s resemble"
    return [
        f"{count:,} {resemble} no class, not even that of the label ({percent(share)}): something else, or nothing "
        "that can be recognised. They are not counted as wrong labels; look at some, and drop what does not belong."
    ]


def _cautions(found: Audit) -> list[str]:
    said = []
    if found.noise.disagreement > _APART:
        rates = [found.noise.estimates[name].overall for name in ("confident", "likelihood")]
        said.append(
            f"The two estimators behind this rate disagree ({_range(min(rates), max(rates), 'and')}): "
            "take it with caution, and look at some suspects yourself."
        )
    if found.evidence.cautious:
        said.append(
            "Some classes are hard to tell apart here: examples that resemble another class than their own have the "
            "benefit of the doubt, and only labels with much against them are called wrong."
        )
    if found.described_by == "pixels" and found.source.shape[0] > 64:
        said.append(
            "The images were compared by their pixels alone, because the backbone has no pretrained weights: "
            "for photographs that says little."
        )
    few = found.noise.pooled.sum()
    if few:
        said.append(
            f"{few} {'class has' if few == 1 else 'classes have'} too few examples for a rate of their own; "
            "they share one."
        )
    return said


def _about_examples(found: Audit) -> list[str]:
    said = []
    kinds, counts = np.unique(found.corruption.kind[found.corruption.corrupted], return_counts=True)
    if len(kinds):
        words = {
            "noise": "look{} noisy",
            "blur": "look{} blurred",
            "far": "lie{} far from all others",
            "odd": "look{} odd",
            "marked": "come{} marked as corrupted",
        }
        what = joined(
            [
                f"{count:,} {words[kind].format('s' * (count == 1))}"
                for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)
            ]
        )
        kept = int((found.corruption.corrupted & ~found.issues).sum())
        said.append(
            f"Of the {'images' if found.source.kind == 'images' else 'examples'}, {what}; {kept:,} of these have "
            "a label that looks right, and are worth keeping."
        )
    conflicts = found.duplicates.conflict
    if conflicts.any():
        groups = len(np.unique(found.duplicates.group[conflicts]))
        said.append(
            f"{conflicts.sum():,} examples are copies or near copies of each other with different labels "
            f"({groups:,} {'group' if groups == 1 else 'groups'}): one label of each group must be wrong."
        )
    if found.overlaps and found.overlaps[0].share >= 0.1:
        names, pair = _names(found), found.overlaps[0]
        said.append(
            f"{names[pair.first]} and {names[pair.second]} are hard to tell apart: {percent(pair.share)} of one look "
            "like the other, so doubts between them weigh less."
        )
    return said


def _about_target(found: Audit) -> list[str]:
    moved = found.transfer
    if moved is None:
        return []
    low, high = moved.interval
    value = f"proxy A-distance {moved.distance:.2f} of 2, from {low:.2f} to {high:.2f}"
    if moved.distance < 0.4:
        apart = f"Source and target look alike ({value}): what is learned on the source should carry over."
    elif moved.distance < 1.4:
        apart = f"Source and target differ somewhat ({value}): adaptation should help."
    else:
        apart = (
            f"Source and target are easy to tell apart ({value}): expect a model of the source alone to lose accuracy "
            "there, and adapt it."
        )
    hoped = _accuracy(moved.adapted, moved.plain)
    if not len(moved.missing):
        return [apart, hoped, "Every class of the source seems to occur in the target."]
    names = _names(found)
    shown = [names[k] for k in moved.missing[:6]] + (
        [f"{len(moved.missing) - 6} more"] if len(moved.missing) > 6 else []
    )
    return [
        apart,
        hoped,
        f"The target seems to lack {joined(shown)}: aligning the domains would pull other examples into their place, "
        "so have a look, and consider leaving such classes out of the source.",
    ]


def _accuracy(adapted: Expected, plain: Expected) -> str:
    """What to expect of a model on the target, and how far to rely on it."""
    said = [f"{percent(one.value)} ({_range(one.low, one.high)})" for one in (adapted, plain)]
    if adapted.value > plain.value:
        text = f"an adapted model should get about {said[0]} of it right, a plain one {said[1]}"
    else:
        text = f"a plain model should get about {said[1]} of it right; adapting promises no more on these features"
    best = max(adapted, plain)
    if best.high - best.low > _WIDE:
        text += ": little more than a guess, as there are few examples, classes overlap or classifiers disagree"
    return f"Without labels of the target, {text}."


def joined(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _range(low: float, high: float, between: str = "to") -> str:
    return f"{percent(low).removesuffix(_SPACE + '%')}{_SPACE}{between}{_SPACE}{percent(high)}"


def _names(found: Audit) -> list[str]:
    return [label_key(name) for name in found.source.classes.tolist()]
