"""What a person decided about suspects: keep the label, give another, or drop the example.

    robustda fit --decisions decisions.csv ...          # as the audit page exports it: id, decision, label
    source = apply_decisions(source, "decisions.csv")   # the same in Python

Examples that the file does not name stay as they are.
"""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass

import numpy as np

from robustda.data.domain import Domain
from robustda.data.labels import label_key
from robustda.data.wording import listed, nearest, plural
from robustda.errors import DataError

__all__ = ["DECISIONS", "Decisions", "apply_decisions", "read_decisions"]

DECISIONS = ("keep", "relabel", "drop")
_COLUMNS = ("id", "decision", "label")


@dataclass(frozen=True)
class Decisions:
    """Decisions by id, each with its new label where it is to relabel."""

    by_id: dict[str, tuple[str, str]]
    content: bytes
    """the file as it was, for the record"""
    name: str

    @property
    def confirmed(self) -> frozenset[str]:
        """The ids whose label somebody has looked at and vouches for: kept or relabelled."""
        return frozenset(identity for identity, (decision, _) in self.by_id.items() if decision != "drop")

    def apply(self, domain: Domain) -> Domain:
        """The domain as it was decided: dropped examples are out, relabelled ones have their new label."""
        if domain.y is None:
            raise DataError(
                f"{domain.called} has no labels, so there is nothing to decide about: leave {self.name} out"
            )
        rows = {identity: row for row, identity in enumerate(domain.ids.tolist())}
        codes = {label_key(name): code for code, name in enumerate(domain.classes.tolist())}
        if unknown := [identity for identity in self.by_id if identity not in rows]:
            raise DataError(
                f"{self.name} decides about {plural(len(unknown), 'example')} that {domain.called} does not have, "
                f"first {listed(unknown, 3)}: give the decisions that were made about this source"
            )
        y, stays = domain.y.copy(), np.ones(len(domain), dtype=bool)
        for identity, (decision, label) in self.by_id.items():
            if decision == "drop":
                stays[rows[identity]] = False
            elif decision == "relabel":
                if label not in codes:
                    raise DataError(
                        f"{self.name} relabels '{identity}' as '{label}', which is no class of {domain.called}: "
                        f"{nearest(label, list(codes))}"
                    )
                y[rows[identity]] = codes[label]
        changed = domain.with_labels(y)
        return changed if stays.all() else changed.take(stays)


def apply_decisions(domain: Domain, path: str | os.PathLike[str]) -> Domain:
    """The domain as the decisions in this file want it."""
    return read_decisions(path).apply(domain)


def read_decisions(path: str | os.PathLike[str]) -> Decisions:
    """Read a table with the columns id, decision and label; the label is needed where the decision is to relabel."""
    try:
        with open(path, "rb") as file:
            content = file.read()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read the decisions {path} ({error.strerror}): check the path") from None
    except UnicodeDecodeError:
        raise DataError(f"the decisions {path} are not UTF-8 text: export them from the audit page again") from None
    try:
        header, *lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line] or [[]]
    except csv.Error as error:
        raise DataError(f"the decisions {path} are not a table ({error}): export them again") from None
    if missing := [name for name in _COLUMNS if name not in header]:
        raise DataError(f"{path} has no column '{missing[0]}': decisions have {','.join(_COLUMNS)}")
    places = [header.index(name) for name in _COLUMNS]
    found: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(lines, start=1):
        if len(line) != len(header):
            raise DataError(f"decision {number} in {path} has {len(line)} fields for {len(header)} columns: mend it")
        identity, decision, label = (line[place] for place in places)
        if decision not in DECISIONS:
            raise DataError(f"decision {number} in {path} is '{decision}': write {', '.join(DECISIONS)}")
        if decision == "relabel" and not label:
            raise DataError(f"decision {number} in {path} relabels '{identity}' but gives no label: fill it in")
        if identity in found:
            raise DataError(f"{path} decides twice about '{identity}': leave one of them")
        found[identity] = (decision, label)
    return Decisions(found, content, str(path))
