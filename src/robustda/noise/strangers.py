"""Examples that nobody has learned from, judged by what was believed of a sample: for data too large to compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
_APART, _SURE, _FEWEST = 0.2, 0.75, 5
"""Classes, of five believed examples or more, have uneven labels where their shares of wrong ones are so far apart, and
witnesses so sure. Where half of the classes had 70 % wrong labels and half 10 %, it was .21 to .26 on Office-31 and .19
to .26 on emoji; where all had 40 %, up to .12 and .20. Witnesses were sure by .80 to .94, and .59 to .71 on emoji."""


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
    as_given: bool = True
    """whether most labels of nearly every class are right, so that they may be learned from as they were given, too"""

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
        verdict = Verdict(found.wrong, found.suggested, found.confidence, float(found.unlike.mean()))
        if found.otherwise is None:
            return verdict
        if not _uneven(found):
            return replace(verdict, others=(found.otherwise,))
        # The other reading supposes one rate, and of some classes hardly a label is right as it was given.
        return replace(verdict, others=(_together(found, x, seed),), as_given=False)
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
    unlike, as_given = float(evidence.unlike.mean()), not say_of_clusters(evidence.rate)
    return Verdict(wrong, suggested, confidence, unlike, as_given=as_given)


def _uneven(found: LabelEvidence) -> bool:
    """Whether some classes have far more wrong labels than others.

    That is the standard deviation over classes, beyond chance, of the share of a class's examples that have another's
    label. Witnesses who are not sure of themselves see such differences where classes are merely hard.
    """
    sound = ~found.corrupted
    if found.pred_probs[sound].max(axis=1).mean() < _SURE:
        return False
    known = np.flatnonzero((found.confidence > 0.5) & sound)
    classes, changed = found.suggested[known], found.suggested[known] != found.labels[known]
    counts = np.bincount(classes, minlength=len(found.transition))
    told = counts >= _FEWEST
    if told.sum() < 2:
        return False
    shares = np.bincount(classes, changed, minlength=len(counts))[told] / counts[told]
    mean = float(shares.mean())
    by_chance = float((mean * (1 - mean) / counts[told]).mean())
    return float(shares.var()) - by_chance > _APART**2


def _together(found: LabelEvidence, features: Single, seed: int) -> Codes:
    """The class of each sound example by the witnesses and what all labels say together, −1 for none."""
    sound = np.flatnonzero(~found.corrupted)
    labels = found.labels[sound]
    heard = posterior(found.pred_probs[sound], found.transition, labels)[0].astype(np.float64)
    x = describe(features[sound], seed)
    return _named(beside_field(heard, found.transition, x, labels), sound, len(found.labels))


def _named(belief: Floats, sound: Codes, size: int) -> Codes:
    """The class of each example that is likelier than not, −1 for none and for those that are not among the sound."""
    codes = np.full(size, -1)
    codes[sound] = np.where(belief.max(axis=1) > 0.5, belief.argmax(axis=1), -1)
    return codes


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
        return Verdict(wrong, suggested, confidence, as_given=False)
    x = describe(features[sound], seed)
    together = beside_votes(beside_field(heard, found.transition, x, labels), votes, found.rate)
    informed = most_informed(x, labels, n_classes, found.rate, seed=seed)
    others = tuple(_named(reading, sound, len(wrong)) for reading in (together, informed))
    return Verdict(wrong, suggested, confidence, others=others, as_given=False)


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
