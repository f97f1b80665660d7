"""What speaks against relying on a run, beside the accuracy that it expects: for summary.json, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from robustda.data.wording import listed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["check_doubts", "doubts_of", "in_words"]

MISSING, RULES, UNLIKE, CROWDED = "missing_classes", "label_rules", "like_no_class", "crowded_classes"
_SHOWN = 3
_SEVERAL = 0.1  # of the source that resemble no class: amazon of Office-31 as it comes has .02, with wrong labels .05


def doubts_of(memory: Mapping[str, Tensor], classes: np.ndarray) -> dict[str, Any]:
    """What a method has left in the task's memory, by names: `missing` classes, `rules` that labels are wrong by, the
    share of the source that is `unlike` every class, and the classes that are `crowded` in the target, with shares."""
    found: dict[str, Any] = {}
    if "missing" in memory and len(memory["missing"]):
        found[MISSING] = [str(classes[k]) for k in memory["missing"].tolist()]
    if "rules" in memory and len(memory["rules"]):
        found[RULES] = [
            {"class": str(classes[int(true)]), "labelled": str(classes[int(given)]), "share": round(share, 4)}
            for true, given, _, share in memory["rules"].tolist()
        ]
    if "unlike" in memory and float(memory["unlike"]) > _SEVERAL:
        found[UNLIKE] = round(float(memory["unlike"]), 4)
    if "crowded" in memory and len(memory["crowded"]):
        found[CROWDED] = [
            {"class": str(classes[int(k)]), "source": round(here, 4), "target": round(there, 4)}
            for k, here, there in memory["crowded"].tolist()
        ]
    return found


def check_doubts(found: Any, where: str) -> None:
    """Refuse what is no such thing, in a file that was read."""
    try:
        rules = [(str(rule["class"]), str(rule["labelled"]), float(rule["share"])) for rule in found.get(RULES, [])]
        shares = [float(found.get(UNLIKE, 0)), *(share for _, _, share in rules)]
        for crowd in found.get(CROWDED, []):
            str(crowd["class"])
            shares += [float(crowd["source"]), float(crowd["target"])]
        sound = isinstance(found.get(MISSING, []), list) and all(0 <= share <= 1 for share in shares)
    except (AttributeError, KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise ValueError(f"{where} has {str(found)[:80]!r} for doubts")


def in_words(found: Mapping[str, Any]) -> list[str]:
    """A sentence for each kind of doubt, with what to do about it."""
    said = []
    if missing := found.get(MISSING):
        said.append(
            f"the target seems to hold nothing of {listed(missing, _SHOWN)}: what is predicted to be of such a class "
            "is often of another; if you do not expect it there, leave it out of the source"
        )
    if rules := found.get(RULES):
        shown = [f"{rule['share']:.0%} of '{rule['class']}' are labelled '{rule['labelled']}'" for rule in rules]
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        said.append(
            f"labels seem to be wrong by a rule ({', '.join(shown[:_SHOWN])}{more}): where it takes half of a class, "
            "the data do not tell which name is right, and what is expected of the target may be too much; look at "
            "some with robustda audit"
        )
    if share := found.get(UNLIKE):
        said.append(
            f"{share:.0%} of the source resembles no class, not even that of the label: something else, or nothing "
            "that can be recognised; see which with robustda audit, and drop what does not belong"
        )
    if crowded := found.get(CROWDED):
        shown = [
            f"{crowd['target']:.0%} of the target are taken for '{crowd['class']}', of which the source has "
            f"{crowd['source']:.0%}"
            for crowd in crowded[:_SHOWN]
        ]
        said.append(
            f"{' and '.join(shown)}: if you do not expect that, most of these are mistakes, which happen where classes "
            "are few and one of them is rare; compare --method rda"
        )
    return said
