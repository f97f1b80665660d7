"""What was done to a domain, example by example: enough to do it again, and to undo it."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robustda.data.labels import label_key
from robustda.errors import DataError
from robustda.noise.recipes import BLUR, SCALE, BlurSaltPepper, corrupt_vectors

if TYPE_CHECKING:
    from robustda.data.domain import Domain

__all__ = ["NoiseRecord"]

Names = npt.NDArray[np.str_]
Flags = npt.NDArray[np.bool_]

COLUMNS = ("file", "label", "given_label", "blurred")
RECIPE = ("kind", "rate", "seed", "transition", "blur", "scale")
_VECTOR_STREAM = 2


@dataclass(frozen=True, eq=False)
class NoiseRecord:
    """The noise of a domain, example by example.

    Labels are kept by name, written as text, and "" stands for an example without one. ``apply`` needs the
    recipe's ``seed``, ``blur`` and ``scale``; ``restore`` needs ``originals`` where examples lie in memory.
    """

    ids: Names
    labels: Names
    """the true label y of each example"""
    given_labels: Names
    """the label ỹ that it was given"""
    corrupted_features: Flags
    """whether its features are x̃ = x + e"""
    kind: str = ""
    rate: float | None = None
    seed: int = 0
    transition: str | npt.NDArray[np.float64] = ""
    blur: float = BLUR
    scale: float = SCALE
    originals: npt.NDArray[Any] | None = None
    """the rows with corrupted features as they were, in the record's order; None for image files"""
    extra: Mapping[str, Names] = field(default_factory=dict)
    """further columns of the table, as text"""

    def __post_init__(self) -> None:
        for name in ("ids", "labels", "given_labels"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.str_))
        object.__setattr__(self, "corrupted_features", np.asarray(self.corrupted_features, dtype=bool))
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))
        lengths = {len(c) for c in (self.ids, self.labels, self.given_labels, self.corrupted_features)}
        if len(lengths | {len(c) for c in self.extra.values()}) > 1:
            raise DataError("the columns of the noise record differ in length: give one entry an example")
        if len(set(self.ids.tolist())) < len(self):
            raise DataError("the noise record names an example twice: give each id once")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def wrong_labels(self) -> Flags:
        return np.asarray(self.labels != self.given_labels, dtype=bool)

    @property
    def corrupted(self) -> Flags:
        """Which examples have a wrong label, corrupted features, or both."""
        return self.wrong_labels | self.corrupted_features

    def apply(self, domain: Domain) -> Domain:
        """The clean ``domain`` with this noise; examples are matched by id and must have the true labels.

        Image files are corrupted when they are decoded, images in memory now, both by the authors' recipe;
        vectors by additive noise.
        """
        rows = self._rows_of(domain)
        _must_agree(domain, self.labels[rows], "true label")
        noisy = _with_label_names(domain, self.given_labels[rows])
        hit = np.flatnonzero(self.corrupted_features[rows])
        if not len(hit):
            return noisy
        if domain.kind == "vectors":
            stream = np.random.SeedSequence(self.seed, spawn_key=(_VECTOR_STREAM,))
            return replace(noisy, x=corrupt_vectors(np.asarray(domain.x), hit, stream, scale=self.scale))
        edits = {int(i): BlurSaltPepper.of(self.seed, str(domain.ids[i]), self.blur) for i in hit}
        if not isinstance(domain.x, np.ndarray):
            if twice := len(edits.keys() & domain.x.edits.keys()):
                raise DataError(f"{twice} images carry an edit already: restore them before adding noise")
            return replace(noisy, x=domain.x.with_edits(edits))
        images = np.array(domain.x)
        for i, edit in edits.items():
            images[i] = edit(images[i])
        return replace(noisy, x=images)

    def restore(self, noisy: Domain) -> Domain:
        """The domain as it was: true labels; features from ``originals``, or without the files' edits."""
        rows = self._rows_of(noisy)
        _must_agree(noisy, self.given_labels[rows], "given label")
        clean = _with_label_names(noisy, self.labels[rows])
        hit = np.flatnonzero(self.corrupted_features[rows])
        if not len(hit):
            return clean
        if not isinstance(noisy.x, np.ndarray):
            edited = set(hit.tolist())
            if lost := len(edited - noisy.x.edits.keys()):
                raise DataError(f"{lost} images are corrupted on disk: use restore_folder with the original folder")
            kept = {i: edit for i, edit in noisy.x.edits.items() if i not in edited}
            return replace(clean, x=replace(noisy.x, edits=kept))
        if self.originals is None:
            raise DataError("the noise record holds no original rows: add them from the clean domain by remember()")
        place = np.cumsum(self.corrupted_features) - 1
        x = np.array(noisy.x)
        x[hit] = self.originals[place[rows[hit]]]
        return replace(clean, x=x)

    def remember(self, clean: Domain) -> NoiseRecord:
        """This record with the rows of ``clean`` that it corrupts: what ``restore`` needs for arrays."""
        if not isinstance(clean.x, np.ndarray):
            return self
        order = {identity: i for i, identity in enumerate(clean.ids.tolist())}
        missing = [i for i in self.ids[self.corrupted_features].tolist() if i not in order]
        if missing:
            raise DataError(f"the domain lacks the recorded example {missing[0]!r}: give the whole domain")
        rows = [order[i] for i in self.ids[self.corrupted_features].tolist()]
        return replace(self, originals=clean.x[rows])

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """The table alone: file, label, given_label, blurred, and the extra columns."""
        flags = self.corrupted_features.astype(int).tolist()
        columns = [self.ids.tolist(), self.labels.tolist(), self.given_labels.tolist(), flags]
        columns += [values.tolist() for values in self.extra.values()]
        # A file's name need not be text: surrogates let such names pass through the table and back.
        with open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*COLUMNS, *self.extra])
            writer.writerows(zip(*columns, strict=True))

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str], **about: Any) -> NoiseRecord:
        """A table such as the authors' draws; ``about`` adds what it does not tell: kind, rate, seed, …"""
        try:
            with open(path, newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
                header, *lines = [line for line in csv.reader(file) if line] or [[]]
        except OSError as error:
            raise DataError(f"cannot read the noise record {path}: {error.strerror}") from None
        except csv.Error as error:
            raise DataError(f"the noise record {path} is not a table ({error}): mend it, or make it again") from None
        if missing := [name for name in COLUMNS if name not in header]:
            raise DataError(f"{path} has no column {missing[0]!r}: a noise record has {','.join(COLUMNS)}")
        for number, line in enumerate(lines, start=2):
            if len(line) != len(header):
                raise DataError(f"{path}, row {number}, has {len(line)} fields for {len(header)} columns: mend it")
        table = {name: np.array([line[j] for line in lines], dtype=np.str_) for j, name in enumerate(header)}
        blurred = np.char.lower(table["blurred"])
        yes, no = (np.isin(blurred, words) for words in (("1", "true"), ("0", "false")))
        if not (yes | no).all():
            raise DataError(f"{path}: 'blurred' holds {blurred[~(yes | no)][0]!r}; write 0 or 1")
        extra = {name: values for name, values in table.items() if name not in COLUMNS}
        return cls(table["file"], table["label"], table["given_label"], yes, extra=extra, **about)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to ``path``; beside it the recipe (.json) and rows from memory (.originals.npz)."""
        path, recipe, originals = _beside(path)
        if self.originals is None:
            originals.unlink(missing_ok=True)
        else:
            np.savez(originals, originals=self.originals)
        about = {name: getattr(self, name) for name in RECIPE}
        if isinstance(self.transition, np.ndarray):
            about["transition"] = self.transition.tolist()
        recipe.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        self.to_csv(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NoiseRecord:
        """What ``save`` wrote; a table that stands alone loads too."""
        path, recipe, originals = _beside(path)
        about: dict[str, Any] = {}
        try:
            if recipe.exists():
                about = {name: json.loads(recipe.read_text(encoding="utf-8"))[name] for name in RECIPE}
            if originals.exists():
                with np.load(originals, allow_pickle=False) as arrays:
                    about["originals"] = arrays["originals"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"what lies beside {path} is not of this noise record ({error}): move it") from None
        if isinstance(about.get("transition"), list):
            about["transition"] = np.asarray(about["transition"], dtype=np.float64)
        return cls.from_csv(path, **about)

    def _rows_of(self, domain: Domain) -> npt.NDArray[np.intp]:
        """Where each example of the domain stands in the record."""
        order = {identity: i for i, identity in enumerate(self.ids.tolist())}
        rows = [order.get(identity, -1) for identity in domain.ids.tolist()]
        if unknown := rows.count(-1):
            first = domain.ids[rows.index(-1)]
            raise DataError(f"{unknown} examples are not in the noise record, {first} first: take its own domain")
        return np.asarray(rows, dtype=np.intp)


def _beside(path: str | os.PathLike[str]) -> tuple[Path, Path, Path]:
    path = Path(path)
    return path, path.with_suffix(".json"), path.with_suffix(".originals.npz")


def label_names(domain: Domain) -> Names:
    """The label of each example as text, "" where there is none."""
    if domain.y is None:
        return np.full(len(domain), "", dtype=np.str_)
    names: Names = np.array([*map(label_key, domain.classes.tolist()), ""], dtype=np.str_)
    return np.asarray(names[domain.y])


def _with_label_names(domain: Domain, names: Names) -> Domain:
    if domain.y is None:
        return domain
    codes = {label_key(name): k for k, name in enumerate(domain.classes.tolist())} | {"": -1}
    if unknown := set(names.tolist()) - codes.keys():
        raise DataError(f"the noise record has a label {min(unknown)!r} that is no class of the domain")
    return domain.with_labels(np.array([codes[name] for name in names.tolist()], dtype=np.int64))


def _must_agree(domain: Domain, names: Names, what: str) -> None:
    apart = np.flatnonzero(label_names(domain) != names)
    if len(apart):
        i = int(apart[0])
        raise DataError(
            f"{len(apart)} labels differ from the record's {what}, {domain.ids[i]} first "
            f"({str(label_names(domain)[i])!r}, recorded {str(names[i])!r}): take its own domain"
        )
