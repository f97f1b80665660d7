"""Data that people hold as objects or lists: torch and torchvision data sets, Hugging Face's, and lists of files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robustda.data.images import ImageFiles, image_extensions, to_rgb
from robustda.data.readers import Labels, Parts, check_switch
from robustda.data.spool import gather, keep_file
from robustda.data.wording import listed, nearest
from robustda.errors import DataError, RobustDAWarning

__all__ = ["is_saved_dataset", "read_dataset", "read_list", "read_saved_dataset"]

_INPUT_KEYS = ("image", "img", "pixel_values", "x", "features", "embedding", "input")
_LABEL_KEYS = ("label", "labels", "y", "target", "class", "fine_label")


def read_dataset(
    dataset: Any, labels: Labels, *, x: str | None = None, label: str | None = None, cache_dir: str | None = None
) -> Parts:
    """torchvision's folders by their files, Hugging Face's data sets by their columns, any other example by example."""
    check_switch(labels)
    if isinstance(dataset, Mapping):
        raise DataError(f"this holds several data sets ({listed(dataset)}): give one of them")
    if hasattr(dataset, "features") and hasattr(dataset, "column_names"):
        parts = _hugging_face(dataset, x, label, cache_dir)
    elif not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise DataError(
            f"a {type(dataset).__name__} cannot be read by number: give a map-style data set, with a length, "
            "or collect its examples into arrays"
        )
    elif not len(dataset):
        raise DataError("the data set has no examples")
    else:
        parts = _files_of(dataset) or _one_by_one(dataset, x, label, cache_dir)
    if labels == "ignore":
        return parts._replace(labels=None, classes=None)
    if labels == "required" and parts.labels is None:
        raise DataError("the data set has no labels: name the key or column that holds them (label=...)")
    return parts


def read_list(path: Path, labels: Labels) -> Parts:
    """A text file of image paths, one a line, each with a label behind it (after a tab or a space) or without.

    Paths are relative to the list's folder, and may have spaces in them: the last word is a label only where the line
    as a whole names no file.
    """
    check_switch(labels)
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the list {path} cannot be read ({error}): give a text file of image paths") from error
    if not lines:
        raise DataError(f"the list {path} has no lines")
    folder = os.path.abspath(path.parent)
    pairs = [_path_and_label(line.rstrip(), folder) for line in lines]
    files = ImageFiles(tuple(os.path.join(folder, name) for name, _ in pairs))
    if not any(os.path.exists(file) for file in files.paths):
        raise DataError(
            f"the list {path}: none of its files exists (first {files.paths[0]}): paths are relative to its folder"
        )
    ids, found = [name for name, _ in pairs], [given for _, given in pairs]
    if labels == "ignore" or not any(found):
        if labels == "required":
            raise DataError(f"the list {path} has no labels: put one behind each path, after a tab")
        return Parts(files, None, ids)
    whole = [given for given in found if given]
    if all(given.lstrip("-").isdigit() and str(int(given)) == given for given in whole):
        return Parts(files, [int(given) if given else None for given in found], ids)
    return Parts(files, [given or None for given in found], ids)


def is_saved_dataset(path: Path) -> bool:
    """Whether a folder is what `save_to_disk` of a Hugging Face data set writes."""
    return (path / "dataset_dict.json").is_file() or (
        (path / "dataset_info.json").is_file() and (path / "state.json").is_file()
    )


def read_saved_dataset(path: Path, labels: Labels, label: str | None = None) -> Parts:
    """A Hugging Face data set from the folder that it was saved to."""
    from robustda.extras import needs

    datasets = needs("datasets", "hf", f"the Hugging Face data set in {path}")
    if (path / "dataset_dict.json").is_file():
        raise DataError(f"{path} holds several splits: give the folder of one of them, such as {path / 'train'}")
    try:
        loaded = datasets.load_from_disk(str(path))
    except Exception as error:  # Arrow's and fsspec's errors share no class
        raise DataError(
            f"the data set in {path} cannot be read ({' '.join(str(error).split())}): save it again"
        ) from error
    return read_dataset(loaded, labels, label=label if label in loaded.column_names else None)


def _path_and_label(line: str, folder: str) -> tuple[str, str]:
    if "\t" in line:
        name, _, given = line.partition("\t")
        return name, given.strip()
    if " " not in line or os.path.exists(os.path.join(folder, line)):
        return line, ""
    name, _, given = line.rpartition(" ")
    # Where neither is a file, a known ending tells what was meant; decoding lists the file as unreadable.
    named = os.path.exists(os.path.join(folder, name)) or Path(name).suffix.lower() in image_extensions()
    return (name, given) if named else (line, "")


def _files_of(dataset: Any) -> Parts | None:
    """The files behind torchvision's ImageFolder and its kind, or a Subset of one; None for other data sets."""
    inner, rows = _unwrapped(dataset)
    samples, classes = getattr(inner, "samples", None), getattr(inner, "classes", None)
    if not isinstance(samples, Sequence) or classes is None or not getattr(inner, "root", None):
        return None
    chosen = samples if rows is None else [samples[row] for row in rows]
    if not all(os.path.splitext(str(path))[1].lower() in image_extensions() for path, _ in chosen):
        return None
    if getattr(inner, "transform", None) is not None:
        message = "the data set's transform is left aside: robustda reads its files, resizes and augments by itself"
        warnings.warn(message, RobustDAWarning, stacklevel=4)
    root = os.path.abspath(inner.root)
    paths = tuple(os.path.abspath(path) for path, _ in chosen)
    ids = [os.path.relpath(path, root).replace(os.sep, "/") for path in paths]
    return Parts(ImageFiles(paths), [str(classes[code]) for _, code in chosen], ids)


def _unwrapped(dataset: Any) -> tuple[Any, list[int] | None]:
    """What a torch Subset, of a Subset perhaps, is a part of, and which rows."""
    rows: list[int] | None = None
    while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
        here = [int(row) for row in dataset.indices]
        rows = here if rows is None else [here[row] for row in rows]
        dataset = dataset.dataset
    return dataset, rows


def _one_by_one(dataset: Any, x: str | None, label: str | None, cache_dir: str | None) -> Parts:
    given: list[Any] = []

    def inputs() -> Iterator[Any]:
        for row in range(len(dataset)):
            value, target = _split(dataset[row], x, label)
            given.append(_label(target, row))
            yield value

    walk = inputs()
    first = next(walk)
    if _is_vector(first):
        found: Any = np.stack([_vector(value, row) for row, value in enumerate(_chain(first, walk))])
    else:
        found = gather((_pixels(value, row, cache_dir) for row, value in enumerate(_chain(first, walk))), cache_dir)
    classes = getattr(_unwrapped(dataset)[0], "classes", None)
    return Parts(found, _named(given, classes))


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _split(item: Any, x: str | None, label: str | None) -> tuple[Any, Any]:
    """Input and label of one example: a pair, a mapping, or the input alone."""
    if isinstance(item, Mapping):
        keys = [str(key) for key in item]
        for wanted in (x, label):
            if wanted is not None and wanted not in keys:
                raise DataError(f"the examples have no key '{wanted}': {nearest(wanted, keys)}")
        at = x or next((key for key in _INPUT_KEYS if key in keys), None)
        if at is None:
            raise DataError(f"which key holds the inputs? Name it (x=...): {listed(keys, 12)}")
        where = label or next((key for key in _LABEL_KEYS if key in keys and key != at), None)
        return item[at], None if where is None else item[where]
    if isinstance(item, list | tuple) and item and not _is_number(item[0]):
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def _label(value: Any, row: int) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise DataError(f"the label of example {row} has {value.size} values: one class an example is needed")
        value = value.reshape(-1)[0]
    return value.item() if isinstance(value, np.generic) else value


def _named(given: list[Any], classes: Any) -> list[Any] | None:
    """Codes as the names that the data set has for them; -1 and None mean no label."""
    if all(value is None for value in given):
        return None
    names = [str(name) for name in classes] if isinstance(classes, Sequence) and not isinstance(classes, str) else []
    codes = [value for value in given if value is not None]
    if all(isinstance(code, int) and code >= -1 for code in codes):
        named = bool(names) and max(codes) < len(names)
        return [None if code in (None, -1) else names[code] if named else code for code in given]
    return given


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)


def _array(value: Any) -> np.ndarray | None:
    if hasattr(value, "detach"):
        return np.asarray(value.detach().cpu().numpy())
    return value if isinstance(value, np.ndarray) else None


def _is_vector(value: Any) -> bool:
    array = _array(value)
    return (array is not None and array.ndim == 1) or (isinstance(value, list | tuple) and _is_number(value[0]))


def _vector(value: Any, row: int) -> np.ndarray:
    array = _array(value)
    try:
        vector = np.asarray(value if array is None else array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"example {row} is no vector of numbers ({error}), but the first one is") from error
    return vector


def _pixels(value: Any, row: int, cache_dir: str | None) -> np.ndarray | str:
    """RGB bytes of a PIL image or an array; the path of a file, or of one made for encoded bytes."""
    if isinstance(value, str | os.PathLike):
        return os.path.abspath(value)
    if isinstance(value, bytes):
        return keep_file(value, "", cache_dir)
    if hasattr(value, "convert") and hasattr(value, "mode"):
        return np.array(to_rgb(value.copy()))
    array = _array(value)
    if array is None or array.ndim not in (2, 3):
        shape = type(value).__name__ if array is None else f"an array of shape {array.shape}"
        raise DataError(f"example {row} is {shape}: give images (PIL, tensor, array, bytes or path) or vectors")
    if array.ndim == 2:
        array = array[..., None]
    elif array.shape[0] in (1, 3) and (hasattr(value, "detach") or array.shape[2] not in (1, 3)):
        array = array.transpose(1, 2, 0)
    if array.shape[2] not in (1, 3):
        raise DataError(f"example {row} is an image of {array.shape[2]} channels: give RGB or gray")
    if array.dtype == np.bool_ or array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not (low >= 0 and high <= 1):
            raise DataError(
                f"example {row} is an image with values from {low:g} to {high:g}: give bytes, or floats from 0 to 1 "
                "(leave Normalize out of the transform: the backbone does that)"
            )
        array = np.rint(array.astype(np.float32) * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise DataError(f"example {row} is an image of type {array.dtype}: give bytes, or floats from 0 to 1")
    return np.ascontiguousarray(np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array)


def _hugging_face(dataset: Any, x: str | None, label: str | None, cache_dir: str | None) -> Parts:
    columns = dataset.column_names
    if not hasattr(dataset, "__len__"):
        raise DataError("a streamed data set cannot be read by number: load it without streaming")
    for wanted in (x, label):
        if wanted is not None and wanted not in columns:
            raise DataError(f"the data set has no column '{wanted}': {nearest(wanted, columns)}")
    kinds = {name: type(feature).__name__ for name, feature in dataset.features.items()}
    named = [name for name in columns if kinds[name] == "ClassLabel"]
    where = label or next((name for name in (*named, *_LABEL_KEYS) if name in columns and name != x), None)
    given = None if where is None else list(dataset[where])
    if where in named:
        given = _named(given or [], dataset.features[where].names)
    elif given is not None:
        given = _named(given, None)
    at = x or next((name for name in columns if kinds[name] == "Image"), None)
    if at is not None and kinds[at] == "Image":
        return Parts(ImageFiles(tuple(_image_files(dataset, at, cache_dir))), given)
    listing = ("List", "LargeList", "Sequence", "Array2D", "list")
    at = at or next((name for name in columns if kinds[name] in listing and name != where), None)
    if at is not None:
        try:
            return Parts(np.stack([np.asarray(row, dtype=np.float32).reshape(-1) for row in dataset[at]]), given)
        except (TypeError, ValueError) as error:
            raise DataError(f"the column '{at}' does not hold vectors of one length ({error})") from error
    from robustda.data.tables import read_table

    rest = [name for name in columns if name != where]
    return read_table(dataset.select_columns(rest).to_pandas(), labels="ignore")._replace(labels=given)


def _image_files(dataset: Any, column: str, cache_dir: str | None) -> Iterator[str]:
    """The files of an image column: where they lie, or copies of the bytes that the data set holds, undecoded."""
    from robustda.extras import needs

    raw = dataset.cast_column(column, needs("datasets", "hf", "a Hugging Face data set").Image(decode=False))
    for row, image in enumerate(raw[column]):
        if image is None:
            raise DataError(f"the column '{column}' is empty in row {row}: leave such rows out with filter")
        if image["bytes"]:
            yield keep_file(image["bytes"], Path(image["path"] or "").suffix.lower(), cache_dir)
        else:
            yield os.path.abspath(image["path"])
