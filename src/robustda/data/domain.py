"""A Domain: inputs, labels, class names and ids that stay together from the user's files to the predictions.

>>> source = Domain.from_arrays([[0.1, 2.0], [3.0, 1.0]], ["cat", "dog"], name="source")
>>> source
Domain('source': 2 vectors of width 2, 2 classes)
>>> source.labels
array(['cat', 'dog'], dtype='<U3')
"""

from __future__ import annotations

import contextlib
import os
import uuid
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from robustda.data.images import ImageFiles, decode, longer_side
from robustda.data.inputs import as_ids, as_inputs, as_marks
from robustda.data.labels import Codes, encode_labels, encode_onto, no_classes
from robustda.data.readers import Labels, Parts, read_folder, read_npz
from robustda.data.wording import listed, nearest, plural
from robustda.errors import DataError, RobustDAWarning

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Domain"]


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """Examples from one place. Made by `read` and the ``from_...`` methods, which accept many forms.

    Parameters
    ----------
    x : float32 vectors (m, d), uint8 images (m, height, width, 3), or image files not decoded yet
    y : int64 codes into `classes`, -1 where an example has no label; None without labels
    classes : the names of the classes in their own type, sorted
    ids : a unique text for each example: path, id column or row number
    name : what messages call this domain
    features : the names of the columns of x where it came from a table
    corrupted : whose inputs look corrupted, where that was seen before x was made of them: vectors hardly show it
    """

    x: np.ndarray | ImageFiles
    y: np.ndarray | None
    classes: np.ndarray
    ids: np.ndarray
    name: str = ""
    features: tuple[str, ...] = ()
    corrupted: np.ndarray | None = None

    def __post_init__(self) -> None:
        held = None if isinstance(self.x, ImageFiles) else (self.x.ndim, self.x.dtype.name)
        if held not in (None, (2, "float32"), (4, "uint8")):
            raise DataError(f"{self.called} holds an array (dimensions, type) {held}: make it with Domain.from_arrays")
        for what, values in (("label", self.y), ("id", self.ids), ("mark of corruption", self.corrupted)):
            if values is not None and values.shape != (len(self.x),):
                raise DataError(f"{self.called} has {plural(len(self.x), 'example')} but {plural(len(values), what)}")
        if self.y is not None and len(self.y) and not -1 <= self.y.min() <= self.y.max() < len(self.classes):
            raise DataError(f"{self.called} has label codes outside -1..{len(self.classes) - 1}")

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any = None, *, ids: Any = None, classes: Any = None, name: str = "", corrupted: Any = None
    ) -> Domain:
        """From vectors (m, d) or images (m, height, width[, 3]); images as uint8, or floats between 0 and 1.

        Labels may be of any type; None, NaN and "" mean that an example has none. With `classes`, whole
        numbers in y are codes into them (-1 = no label) where they all can be, and else names; strings and
        objects are names where they all can be, and else codes; every class must have an example.
        """
        if classes is not None and y is None:
            raise DataError(f"{name or 'the data'} has classes but no labels: give y too")
        return cls._build(Parts(x, y, ids, classes, corrupted=corrupted), name, complete=True)

    @classmethod
    def from_folder(cls, path: str | Path, *, labels: Labels = "auto") -> Domain:
        """One sub-folder a class, nested as one likes; a folder of nothing but images has no labels."""
        return cls._build(read_folder(Path(path), labels), str(path))

    @classmethod
    def from_table(
        cls,
        table: str | Path | pd.DataFrame,
        *,
        labels: Labels = "auto",
        label: str = "label",
        path: str | None = None,
        id: str | None = None,
        features: Sequence[str] | None = None,
        root: str | Path | None = None,
    ) -> Domain:
        """From CSV, TSV, Parquet, JSON lines or a DataFrame: a column of image paths, or else the numeric columns.

        The path column is the one given, or one called path, file, filename or image; paths are relative to
        the table's folder or to `root`. The ids are the column given, or one called id, else the paths or
        the row numbers.
        """
        from robustda.data.tables import read_table

        parts = read_table(table, labels=labels, label=label, path=path, id=id, features=features, root=root)
        domain = cls._build(parts, str(table) if isinstance(table, str | Path) else "the table")
        if labels == "required" and domain.y is None:
            raise DataError(f"{domain.called}: the label column '{label}' is empty: fill it in")
        return domain

    @classmethod
    def from_npz(cls, path: str | Path, *, labels: Labels = "auto") -> Domain:
        """From an .npz file with x and, where they are there, y, ids, classes, features and corrupted."""
        return cls._build(read_npz(Path(path), labels), str(path))

    @classmethod
    def from_npy(cls, path: str | Path, *, labels: Labels = "auto") -> Domain:
        """From x in an .npy file, which stays on the disk, and ``y.npy``, ``ids.npy`` and ``classes.npy`` beside it.

        Beside ``web.npy`` they are ``web_y.npy`` and so on.
        """
        from robustda.data.mapped import read_npy

        return cls._build(read_npy(Path(path), labels), str(path))

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        *,
        labels: Labels = "auto",
        x: str | None = None,
        label: str | None = None,
        name: str = "",
        cache_dir: str | None = None,
    ) -> Domain:
        """From torchvision's ImageFolder, any map-style torch Dataset, or a Hugging Face data set.

        An example is an image (PIL, tensor, array, bytes or path) or a vector, with a label or without: a pair, or a
        mapping whose keys `x` and `label` name. Each is read once, as the data set's transform leaves it; of an
        ImageFolder the files are taken, and the transform is not. Codes become names where the data set has them.
        """
        from robustda.data.sources import read_dataset

        parts = read_dataset(dataset, labels, x=x, label=label, cache_dir=cache_dir)
        if isinstance(parts.x, ImageFiles) and parts.ids is None:
            parts = parts._replace(ids=np.arange(len(parts.x)))
        return cls._build(parts, name or type(dataset).__name__)

    @classmethod
    def from_shards(cls, pattern: str, *, labels: Labels = "auto", label: str = "label") -> Domain:
        """From WebDataset shards: one .tar, or several by shard-{000..011}.tar or shards/*.tar."""
        from robustda.data.shards import read_shards

        return cls._build(read_shards(pattern, labels, label=label), pattern)

    @classmethod
    def from_list(cls, path: str | Path, *, labels: Labels = "auto") -> Domain:
        """From a text file of image paths, one a line, each with its label behind it or without."""
        from robustda.data.sources import read_list

        return cls._build(read_list(Path(path), labels), str(path))

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        labels: Labels = "auto",
        label: str = "label",
        path_column: str | None = None,
        id_column: str | None = None,
    ) -> Domain:
        """From whatever lies there: a folder of images, a .csv, .tsv, .parquet or .jsonl table, a .txt list of images,
        .tar shards, an .npz or .npy file, a Hugging Face data set that was saved, or any of these at an address like s3://.
        """
        from robustda.data.remote import fetch, is_remote
        from robustda.data.shards import SHARD_ENDINGS
        from robustda.data.sources import is_saved_dataset, read_saved_dataset
        from robustda.data.tables import TABLE_ENDINGS

        name = str(path).lower()
        if is_remote(path):
            here = fetch(str(path), path_column=path_column)
            columns = {"label": label, "path_column": path_column, "id_column": id_column}
            return replace(cls.read(here, labels=labels, **columns), name=str(path))  # type: ignore[arg-type]
        if name.endswith(SHARD_ENDINGS):
            return cls.from_shards(str(path), labels=labels, label=label)
        if is_saved_dataset(Path(path)):
            return cls._build(read_saved_dataset(Path(path), labels, label), str(path))
        if Path(path).is_dir():
            return cls.from_folder(path, labels=labels)
        if not Path(path).exists():
            raise DataError(f"there is nothing at {path}: check the path")
        if name.endswith(TABLE_ENDINGS):
            return cls.from_table(path, labels=labels, label=label, path=path_column, id=id_column)
        if name.endswith(".npz"):
            return cls.from_npz(path, labels=labels)
        if name.endswith(".npy"):
            return cls.from_npy(path, labels=labels)
        if name.endswith(".txt"):
            return cls.from_list(path, labels=labels)
        raise DataError(
            f"cannot tell what {path} is: give a folder of images, a .csv, .tsv, .parquet or .jsonl table, "
            "a .txt list, .tar shards, an .npz or an .npy"
        )

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        examples = plural(len(self), self.kind.removesuffix("s"))
        width = f" of width {self.shape[0]}" if self.kind == "vectors" else ""
        labels = "no labels" if self.y is None else f"{len(self.classes)} class{'es' * (len(self.classes) != 1)}"
        return f"Domain({self.name!r}: {examples}{width}, {labels})"

    @property
    def called(self) -> str:
        """The name, or a word in its place, for messages."""
        return self.name or "the data"

    @property
    def kind(self) -> Literal["vectors", "images"]:
        """What an example is."""
        return "vectors" if isinstance(self.x, np.ndarray) and self.x.ndim == 2 else "images"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example; image files have none before they are decoded."""
        if isinstance(self.x, ImageFiles):
            raise DataError(f"the images of {self.called} are not decoded yet: use decoded(size) first")
        return self.x.shape[1:]

    @property
    def labels(self) -> np.ndarray | None:
        """The class name of each example, None where it has none."""
        if self.y is None:
            return None
        if not (self.y < 0).any():
            return np.asarray(self.classes[self.y])
        names = np.array([*self.classes.tolist(), None], dtype=object)
        return np.asarray(names[self.y])

    def class_counts(self) -> npt.NDArray[np.int64]:
        """How many examples each class has, in the order of `classes`."""
        codes = np.empty(0, dtype=np.int64) if self.y is None else self.y
        return np.bincount(codes[codes >= 0], minlength=len(self.classes))

    def take(self, indices: Any) -> Domain:
        """These examples in this order, by number or by mask; stretches of a memory-mapped x stay mapped."""
        rows = np.arange(len(self))[indices]
        if len(rows) and np.bincount(rows).max() > 1:
            raise DataError(f"an example of {self.called} cannot be taken twice: ids are unique")
        step = int(rows[1] - rows[0]) if len(rows) > 1 else 1
        if len(rows) and step > 0 and (np.diff(rows) == step).all():
            picked: Any = slice(int(rows[0]), int(rows[-1]) + 1, step)
        else:
            picked = rows
        x = self.x.take(rows) if isinstance(self.x, ImageFiles) else self.x[picked]
        y, corrupted = (None if values is None else values[picked] for values in (self.y, self.corrupted))
        return replace(self, x=x, y=y, ids=self.ids[picked], corrupted=corrupted)

    def with_labels(self, codes: Any) -> Domain:
        """The same examples with other labels, as codes into the same classes."""
        given = np.asarray(codes)
        if given.dtype.kind not in "iu":
            raise DataError(f"the new labels of {self.called} must be codes into its classes, not {given.dtype}")
        return replace(self, y=given.astype(np.int64))

    def unlabelled(self) -> Domain:
        """The same examples without their labels."""
        return replace(self, y=None, classes=no_classes())

    def natural_size(self) -> int:
        """A size that suits the images: their height; for files the median longer side of 256 of them."""
        if self.kind == "vectors":
            raise DataError(f"{self.called} holds vectors: only images have a size")
        if isinstance(self.x, np.ndarray):
            return int(self.x.shape[1])
        some = np.unique(np.linspace(0, len(self) - 1, min(256, len(self))).astype(int))
        sides = [side for row in some if (side := longer_side(self.x.paths[row])) is not None]
        if not sides:
            raise DataError(f"none of the {plural(len(some), 'image')} tried in {self.called} can be read")
        return int(np.median(sides))

    def decoded(
        self, size: int, *, cache_dir: str | Path | None = None, strict: bool = False, progress: bool = False
    ) -> Domain:
        """Image files as size × size bytes, mapped from the cache; what is in memory already stays as it is.

        Unreadable files are left out with a warning that counts them, or are an error if `strict`.
        """
        if not isinstance(self.x, ImageFiles):
            return self
        pixels, kept, bad = decode(self.x, size, cache_dir=cache_dir, progress=progress)
        found = replace(self.take(kept) if bad else self, x=pixels)
        if bad:
            gone = self.classes[(self.class_counts() > 0) & (found.class_counts() == 0)]
            first = "; ".join(f"{path}: {reason}" for path, reason in bad[:3]) + ("; ..." if len(bad) > 3 else "")
            message = f"{len(bad):,} of {plural(len(self), 'image')} in {self.called} cannot be read ({first})"
            if strict:
                raise DataError(f"{message}: replace or remove them, or go on without them by not being strict")
            lost = f"; that leaves no example of {listed(gone)}" if len(gone) else ""
            warnings.warn(f"{message}: they are left out{lost}", RobustDAWarning, stacklevel=2)
        return found

    def save_npz(self, path: str | Path) -> None:
        """Write x, y, ids, classes and what else is known so that `from_npz` reads them back as they are."""
        if isinstance(self.x, ImageFiles):
            raise DataError(f"the images of {self.called} are not decoded yet: use decoded(size) first")
        arrays = {"x": self.x, "ids": self.ids}
        if self.y is not None:
            arrays |= {"y": self.y, "classes": self.classes}
        if self.features:
            arrays["features"] = np.array(self.features, dtype=str)
        if self.corrupted is not None:
            arrays["corrupted"] = self.corrupted
        own = Path(f"{path}.{uuid.uuid4().hex}")
        try:
            with open(own, "wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            os.replace(own, path)
        except OSError as error:
            raise DataError(f"cannot write {path} ({error.strerror}): choose another place") from error
        finally:
            with contextlib.suppress(OSError):  # there may be no such folder
                own.unlink(missing_ok=True)

    def select_features(self, names: Sequence[str]) -> Domain:
        """The columns of these names in this order; a table may hold more, in another order."""
        if not isinstance(self.x, np.ndarray) or not self.features or self.features == tuple(names):
            return self
        if missing := [name for name in names if name not in self.features]:
            raise DataError(f"{self.called} has no feature '{missing[0]}': {nearest(missing[0], self.features)}")
        places = [self.features.index(name) for name in names]
        return replace(self, x=np.ascontiguousarray(self.x[:, places]), features=tuple(names))

    @classmethod
    def _build(cls, parts: Parts, name: str, complete: bool = False) -> Domain:
        where = name or "the data"
        x, columns = as_inputs(parts.x, where)
        ids = as_ids(list(x.paths) if parts.ids is None and isinstance(x, ImageFiles) else parts.ids, len(x), where)
        codes: Codes | None = None
        classes = no_classes()
        if parts.labels is not None and parts.classes is not None:
            codes, classes = encode_onto(parts.labels, parts.classes, where, complete=complete)
        elif parts.labels is not None:
            codes, classes = encode_labels(parts.labels, where)
        if codes is not None and not (codes >= 0).any():
            codes, classes = None, no_classes()
        corrupted = None if parts.corrupted is None else as_marks(parts.corrupted, len(x), where)
        return cls(x, codes, classes, ids, name, parts.features or columns, corrupted)
