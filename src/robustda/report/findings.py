"""The audit: how noisy are the labels, which examples are wrong, and will it carry over to the target?

found = robustda.audit("web", "camera", out="audits/web")
found.headline            # sentences, the most important one first
found.table()             # the suspects, the worst first: what issues.csv holds
found.evidence, found.noise, found.corruption, found.duplicates, found.transfer
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from robustda.columns import Table
from robustda.data.domain import Domain
from robustda.data.labels import label_key
from robustda.data.pairs import check_pair
from robustda.data.views import natural_size
from robustda.decisions import read_decisions
from robustda.errors import DataError
from robustda.nets import usual_backbone
from robustda.noise.corruption import CorruptionScores, corruption_of, marked
from robustda.noise.evidence import LabelEvidence, enough_left, label_evidence
from robustda.noise.issues import Duplicates, Overlap, find_duplicates, overlapping_classes
from robustda.noise.mixture import loss_mixture
from robustda.noise.transition import NoiseReport, noise_of
from robustda.report.describe import DescribedBy, Features, described, features_by_id
from robustda.report.transfer import Transfer, measure_transfer
from robustda.report.wording import headline

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Audit", "audit"]

_SAME_PICTURE, _SAME_ROW = 0.99, 1 - 1e-6  # cosines from which on examples are near copies: rows of a table lie densely

Data = Domain | str | os.PathLike[str]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found out about a source."""

    source: Domain
    evidence: LabelEvidence
    noise: NoiseReport
    corruption: CorruptionScores
    duplicates: Duplicates
    overlaps: list[Overlap]
    transfer: Transfer | None
    target_name: str | None
    described_by: DescribedBy

    @cached_property
    def headline(self) -> list[str]:
        """What was found, in sentences."""
        return headline(self)

    @property
    def rate(self) -> float:
        """The estimated share of wrong labels."""
        return self.noise.combined.overall

    @property
    def issues(self) -> npt.NDArray[np.bool_]:
        """The labels that are more likely wrong than right."""
        return self.evidence.issues

    @cached_property
    def unlike(self) -> npt.NDArray[np.bool_]:
        """Examples that resemble no class, that of their label included; none where there are only pixels to go by."""
        known = self.described_by != "pixels"
        return self.evidence.unlike & ~self.corruption.corrupted & known

    @cached_property
    def confidence(self) -> npt.NDArray[np.float64]:
        """How likely the suggested class of each example is; by others alone where it resembles none.

        That an example is of one of the classes is taken for granted otherwise, and then its label speaks for itself.
        """
        found = self.evidence
        by_others = found.pred_probs[np.arange(len(found.labels)), found.suggested]
        return np.where(self.unlike, by_others, found.confidence)

    @cached_property
    def kept(self) -> npt.NDArray[np.bool_]:
        """As many examples as can be kept with 95 % of their labels right, corrupted ones among them."""
        return self.evidence.keep()

    @cached_property
    def losses(self) -> npt.NDArray[np.float64]:
        """−log p of each given label, by others: what the mixture of losses sees. No more than −log .01."""
        own = self.evidence.pred_probs[np.arange(len(self.source)), self.evidence.labels]
        losses: npt.NDArray[np.float64] = -np.log(np.maximum(own, 0.01))
        return losses

    @cached_property
    def loss_threshold(self) -> float:
        """From this loss on, the mixture takes an example for one of the large losses; infinity if it takes none."""
        large = self.losses[loss_mixture(self.losses).wrong > 0.5]
        return float(large.min()) if len(large) else float("inf")

    @cached_property
    def suspects(self) -> Codes:
        """The rows that somebody should look at, the worst first.

        Wrong labels, then what resembles no class, clashing copies and corrupted features.
        """
        doubtful = self.issues | self.unlike | self.duplicates.conflict | self.corruption.corrupted
        rows = np.flatnonzero(doubtful)
        doubt = np.where(self.unlike, 0.5, self.evidence.wrong)
        return rows[np.argsort(-doubt[rows], kind="stable")].astype(np.int64)

    @cached_property
    def class_names(self) -> list[str]:
        """The classes as text."""
        return [label_key(name) for name in self.source.classes.tolist()]

    @cached_property
    def digest(self) -> str:
        """Stands for the data and the suspects: decisions kept in a browser belong to it."""
        digest = hashlib.blake2b(digest_size=12)
        for text in (*self.source.ids.tolist(), *self.class_names):
            digest.update(text.encode(errors="surrogatepass") + b"\0")
        for values in (self.evidence.labels, self.suspects):
            digest.update(values.tobytes())
        return digest.hexdigest()

    @cached_property
    def copy_of(self) -> Codes:
        """For each example the row of another that is the same or nearly, one with another label if there is; or −1."""
        labels, others = self.evidence.labels, np.full(len(self.source), -1, dtype=np.int64)
        members: dict[int, list[int]] = {}
        for row in np.flatnonzero(self.duplicates.group >= 0).tolist():
            members.setdefault(int(self.duplicates.group[row]), []).append(row)
        for rows in members.values():
            first, second = rows[:2]
            unlike = next((row for row in rows if labels[row] != labels[first]), None)
            for row in rows:
                if unlike is not None:
                    others[row] = first if labels[row] != labels[first] else unlike
                else:
                    others[row] = second if row == first else first
        return others

    def table(self) -> pd.DataFrame:
        """The suspects, the worst first."""
        import pandas as pd

        rows, names, found = self.suspects, np.array(self.class_names, dtype=object), self.evidence
        copies = self.copy_of[rows]
        return pd.DataFrame(
            {
                "id": self.source.ids[rows],
                "given_label": names[found.labels[rows]],
                "suggested_label": names[found.suggested[rows]],
                "confidence": self.confidence[rows].round(4),
                "probability_wrong": found.wrong[rows].round(4),
                "label_issue": self.issues[rows],
                "like_no_class": self.unlike[rows],
                "corruption_score": self.corruption.score[rows].round(4),
                "corruption_kind": self.corruption.kind[rows],
                "duplicate_of": np.where(copies >= 0, self.source.ids[copies], ""),
                "duplicate_conflict": self.duplicates.conflict[rows],
            }
        )

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write audit.html, issues.csv and audit.json; the page's path comes back."""
        from robustda.report.files import write_audit

        return write_audit(self, Path(folder))


def audit(
    source: Data,
    target: Data | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    decisions: str | os.PathLike[str] | None = None,
    features: Features | None = None,
    target_features: Features | None = None,
    backbone: str = "auto",
    weights: str = "auto",
    image_size: int = 0,
    device: str = "auto",
    cache_dir: str | None = None,
    strict: bool = False,
    progress: bool = False,
    seed: int = 0,
) -> Audit:
    """Judge a labelled source, alone or beside the target that a model is meant for.

    Images are described by the backbone's features, or by `features` made before: an array in the order of the
    examples, or a Domain (or its file) with the same ids. A backbone without pretrained weights is passed over for the
    pixels. `decisions` made after an earlier audit are applied first. With `out`, the page and the tables are written
    to that folder. Labels of the target are not looked at.

    >>> rng = np.random.default_rng(0)
    >>> true = np.arange(200) % 2
    >>> given = np.where(np.arange(200) < 20, 1 - true, true)
    >>> found = audit(Domain.from_arrays(4 * true[:, None] + rng.normal(size=(200, 5)), given))
    >>> bool(found.issues[:20].all()), int(found.issues.sum())
    (True, 20)
    """
    known = _domain(source, "required")
    other = None if target is None else _domain(target, "ignore").unlabelled()
    made = None if features is None else features_by_id(features, known.ids)
    made_beside = None if other is None or target_features is None else features_by_id(target_features, other.ids)
    if decisions is not None:
        known = read_decisions(decisions).apply(known)
    known, checked = check_pair(known, known.unlabelled() if other is None else other)
    other = None if other is None else checked
    size = (image_size or natural_size(known)) if known.kind == "images" else 0  # one for both, as in a fit
    looking = {"backbone": backbone, "weights": weights, "image_size": size, "device": device}
    looking |= {"cache_dir": cache_dir, "strict": strict, "progress": progress}
    looking |= {"precision": "auto", "find_corrupted": False}  # as a fit after it, which finds what was made here
    table = _table(known, other or known, backbone, seed) if made is None else None
    known, x, how = described(known, made, looking, table)
    known, _ = check_pair(known, known.unlabelled())  # a class may have lost all its images
    assert known.y is not None
    corruption = corruption_of(np.asarray(known.x)) if known.corrupted is None else marked(known.corrupted)
    odd = enough_left(corruption.corrupted, known.y)
    columns = None if table is None else np.asarray(known.x)
    evidence = label_evidence(x, known.y, len(known.classes), corrupted=odd, columns=columns, seed=seed)
    transfer = None
    if other is not None:
        other, beside, _ = described(other, made_beside, looking, table)
        if beside.shape[1] != x.shape[1]:
            raise DataError(
                f"the source has {x.shape[1]} features and the target {beside.shape[1]}: make both in the same way"
            )
        masks = {"trusted": ~evidence.issues, "proxy": ~corruption.corrupted, "given": known.y, "corrupted": odd}
        transfer = measure_transfer(x, evidence.suggested, len(known.classes), beside, **masks, seed=seed)
    found = Audit(
        source=known,
        evidence=evidence,
        noise=noise_of(evidence, seed=seed),
        corruption=corruption,
        duplicates=find_duplicates(x, known.y, near=_SAME_ROW if table else _SAME_PICTURE),
        overlaps=overlapping_classes(known.y, evidence.pred_probs),
        transfer=transfer,
        target_name=None if other is None else other.called,
        described_by=how,
    )
    if out is not None:
        found.save(out)
    return found


def _table(source: Domain, target: Domain, backbone: str, seed: int) -> Table | None:
    """How a fit would see the rows, where it would take them for those of a table."""
    if source.kind == "images" or (usual_backbone(source.shape) if backbone == "auto" else backbone) != "table":
        return None
    return Table.of(np.asarray(source.x), np.asarray(target.x), seed)


def _domain(data: Data, labels: Literal["required", "ignore"]) -> Domain:
    return data if isinstance(data, Domain) else Domain.read(Path(data), labels=labels)
