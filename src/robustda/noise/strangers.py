"""Examples that nobody has learned from, judged by what was believed of a sample: for data too large to compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robustda.noise.clusters import beside_votes, cluster_votes, say_of_clusters
from robustda.noise.evidence import Codes, LabelEvidence, Values, label_evidence
from robustda.noise.field import beside_field
from robustda.noise.information import most_informed
from robustda.noise.likelihood import Floats, posterior, softmax
from robustda.noise.vectors import Lookup
from robustda.noise.witnesses import Description, Flags, Single, Testifying, describe

__all__ = ["ALL", "Judge", "Verdict", "enough", "judge_labels", "sample_rows"]

ALL = 30_000
"""Up to so many examples are all compared with each other; of more a sample is."""

_LEAST = 30  # examples of a class that are in a sample, if it has so many
_SAMPLE, _OF_EACH = 10_000, 100  # so many examples stand for more than all, or so many of each class on average
_JUDGED = 20_000  # no fewer where labels are judged: neighbours are sought among so many
_TYPICAL = 5_000  # examples that show the main directions
_BLOCK = 4096  # examples judged at a time
_READ = 3_000_000  # beliefs up to which labels are read in other ways too, which would take minutes of more


@dataclass(frozen=True, eq=False)
class Verdict:
    """What was found out about each label, as `LabelEvidence` has it."""

    wrong: Values
    suggested: Codes
    confidence: Values
    unlike: float = 0.0
    """the share of those that were compared with each other that resemble no class; 0 where most labels are wrong"""
    others: tuple[Codes, ...] = ()
    """Other readings of the same labels, a class for each sound example or −1, if there are any.

    Whatever reads labels mistakes groups of examples together, and each reading others of them: classifiers that learn
    from different ones make up for it."""
    most_right: bool = True
    """whether most labels are right, so that something may be learned from them as they were given, too"""

    @property
    def issues(self) -> Flags:
        """The labels that are more likely wrong than right."""
        found: Flags = self.wrong > 0.5
        return found


def enough(n_classes: int) -> int:
    """How many examples stand for more than all that could be compared."""
    return min(ALL, max(_SAMPLE, _OF_EACH * n_classes))


def judge_labels(
    features: Lookup,
    labels: Codes,
    n_classes: int,
    *,
    seen_as: Callable[[np.ndarray], Single],
    corrupted: Flags | None = None,
    columns: npt.NDArray[Any] | None = None,
    most: int = 0,
    seed: int = 0,
) -> Verdict:
    """Judge every label by ``seen_as(features)``, of which no large part is ever in memory at a time.

    Up to `most` examples (else 30,000) are all compared with each other (`label_evidence`). Of more, a sample is, and
    the others are judged by what was believed of it. What all labels say together is not heard: it is right more often,
    but its mistakes lie together, and a class that is mistaken as a whole costs a classifier more than scattered labels
    do. Where some are `corrupted`, whose own kind must be among those compared, all are. `columns` are the rows of a
    table from which features were made: trees judge by them, too.
    """
    most = most or ALL
    if len(labels) <= most or (corrupted is not None and corrupted.any()):
        x = seen_as(np.asarray(features))
        how = {"corrupted": corrupted, "columns": columns, "readings": len(labels) * n_classes <= _READ}
        found = label_evidence(x, labels, n_classes, together=False, seed=seed, **how)  # type: ignore[arg-type]
        # Classes that are hard to tell apart are not taken for labels most of which are wrong.
        rate = found.rate if found.even_rate is None else min(found.rate, found.even_rate)
        if say_of_clusters(rate):
            return _most_wrong(found, x, seed, alone=columns is not None or found.by_rule)
        others = () if found.otherwise is None else (found.otherwise,)
        return Verdict(found.wrong, found.suggested, found.confidence, float(found.unlike.mean()), others)
    rows = sample_rows(labels, min(most, max(_JUDGED, enough(n_classes))), np.random.default_rng(seed))
    look = Description(seen_as(features[rows[:: -(-len(rows) // _TYPICAL)]]), seed)
    some = np.concatenate([look.of(seen_as(features[part])) for part in _parts(rows)])
    table = None if columns is None else columns[rows]
    evidence = label_evidence(some, labels[rows], n_classes, columns=table, together=False, seed=seed)
    judge = Judge(some, evidence, seed)
    del some
    wrong, confidence = np.empty(len(labels)), np.empty(len(labels))
    suggested = np.empty(len(labels), dtype=np.int64)
    for part in _parts(np.arange(len(labels))):
        block = slice(part[0], part[-1] + 1)
        probabilities, _ = judge(look.of(seen_as(features[block])), None if columns is None else columns[block])
        belief, _ = posterior(probabilities, evidence.transition, labels[block])
        wrong[block] = 1 - belief[np.arange(len(belief)), labels[block]]
        suggested[block], confidence[block] = belief.argmax(axis=1), belief.max(axis=1)
    wrong[rows], suggested[rows], confidence[rows] = evidence.wrong, evidence.suggested, evidence.confidence
    unlike, most_right = float(evidence.unlike.mean()), not say_of_clusters(evidence.rate)
    return Verdict(wrong, suggested, confidence, unlike, most_right=most_right)


def _most_wrong(found: LabelEvidence, features: Single, seed: int, *, alone: bool) -> Verdict:
    """What is believed of labels most of which are wrong, with clusters heard too; of corrupted examples as before.

    Unless witnesses stand `alone`, there are other readings: with what all labels say together, and by classifiers that
    have to be sure.
    """
    sound = np.flatnonzero(~found.corrupted)
    labels, n_classes = found.labels[sound], len(found.transition)
    heard = posterior(found.pred_probs[sound], found.transition, labels)[0].astype(np.float64)
    votes = cluster_votes(features[sound], labels, n_classes, found.rate, seed=seed)
    belief = beside_votes(heard, votes, found.rate)
    wrong, suggested, confidence = found.wrong.copy(), found.suggested.copy(), found.confidence.copy()
    wrong[sound] = 1 - belief[np.arange(len(sound)), labels]
    suggested[sound], confidence[sound] = belief.argmax(axis=1), belief.max(axis=1)
    if alone or heard.size > _READ:
        return Verdict(wrong, suggested, confidence, most_right=False)
    x = describe(features[sound], seed)
    together = beside_votes(beside_field(heard, found.transition, x, labels), votes, found.rate)
    others = []
    for reading in (together, most_informed(x, labels, n_classes, found.rate, seed=seed)):
        codes = np.full(len(wrong), -1)
        codes[sound] = np.where(reading.max(axis=1) > 0.5, reading.argmax(axis=1), -1)
        others.append(codes)
    return Verdict(wrong, suggested, confidence, others=tuple(others), most_right=False)


class Judge:
    """The witnesses, once they have learned from a sample what was believed of it."""

    def __init__(self, features: Single, evidence: LabelEvidence, seed: int = 0) -> None:
        sound = ~evidence.corrupted
        self.description = Description(features[sound], seed)
        self.weights, self.trees = evidence.weights, evidence.trees
        believed = posterior(evidence.pred_probs.astype(np.float32), evidence.transition, evidence.labels)[0]
        self.witnesses = Testifying(self.description.of(features), believed.astype(np.float32), sound)

    def __call__(self, features: Single, columns: npt.NDArray[Any] | None = None) -> tuple[Floats, Flags]:
        """Probabilities of the true class, and who resembles the corrupted examples of the sample.

        `columns` are the rows of the table that the features were made of, as for `label_evidence`.
        """
        scores, sureness, odd = self.witnesses(self.description.of(features))
        if self.trees is not None:
            if columns is None:
                raise ValueError("the sample was judged by trees as well: give the columns of these rows")
            scores = (*scores, self.trees(columns) * sureness)
        return softmax(scores, self.weights), odd


def sample_rows(codes: Codes, most: int, rng: np.random.Generator) -> Codes:
    """About `most` rows, of each class in proportion, but of a small class no fewer than 30."""
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    counts = np.bincount(codes)
    wanted = np.maximum(np.rint(counts * most / len(codes)), np.minimum(counts, _LEAST))
    rank = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    found: Codes = np.sort(order[rank < np.repeat(wanted, counts)])
    return found


def _parts(rows: Codes) -> list[Codes]:
    """The rows in parts of about one size: what is usual among those of a part is known for the last one, too."""
    return np.array_split(rows, -(-len(rows) // _BLOCK))
