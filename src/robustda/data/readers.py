"""Reading a folder of images or an .npz file into the parts of a Domain (tables have their own file)."""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from robustda.data.images import ImageFiles, image_extensions
from robustda.data.wording import listed, nearest, plural
from robustda.errors import ConfigError, DataError
from robustda.reading import memory_size

__all__ = ["UNREADABLE", "Labels", "Parts", "check_switch", "read_array", "read_folder", "read_npz"]

Labels = Literal["auto", "required", "ignore"]

UNREADABLE = (OSError, EOFError, ValueError, OverflowError, SyntaxError, TokenError, TypeError, zipfile.BadZipFile)
"""what NumPy raises over damaged headers of arrays, which it reads as Python's literals"""


class Parts(NamedTuple):
    """What a reader found: inputs, labels, ids, and, class names, feature names and marks if there are any."""

    x: Any
    labels: Any = None
    ids: Any = None
    classes: Any = None
    features: tuple[str, ...] = ()
    corrupted: Any = None


def check_switch(labels: str) -> None:
    """Labels are used where they are there (auto), demanded (required) or left aside (ignore)."""
    if labels not in ("auto", "required", "ignore"):
        raise ConfigError(f"labels must be 'auto', 'required' or 'ignore', not {labels!r}")


def read_folder(path: Path, labels: Labels) -> Parts:
    """One sub-folder a class, as deep below as one likes; images lying flat have no labels.

    Some may lie flat beside class folders where labels are optional: of a target, few need to have been looked at.
    """
    check_switch(labels)
    if not path.is_dir():
        raise DataError(f"there is no folder {path}" + (": it is a file" if path.exists() else ""))
    endings = image_extensions()
    found = sorted(_images_below(path, endings), key="/".join)
    if not found:
        raise DataError(f"no images in {path}: nothing there ends in .jpg, .png or another of Pillow's endings")
    files = ImageFiles(tuple(os.path.join(os.path.abspath(path), *parts) for parts in found))
    ids = [_printable("/".join(parts)) for parts in found]
    flat = [parts[0] for parts in found if len(parts) == 1]
    if labels == "ignore" or len(flat) == len(found):
        if labels == "required":
            raise DataError(f"{path} has no class folders: put the images of each class in a sub-folder of its name")
        return Parts(files, None, ids)
    if flat and labels == "required":
        raise DataError(
            f"{path} has {plural(len(flat), 'image')} beside its class folders (first {listed(flat, 1)}): "
            "move each into the folder of its class, or away"
        )
    with os.scandir(path) as entries:
        folders = sorted(entry.name for entry in entries if _visible(entry) and entry.is_dir())
    # A sub-folder without images still names a class: check_pair tells a source that it has no example of it.
    given = [_printable(parts[0]) if len(parts) > 1 else None for parts in found]
    return Parts(files, given, ids, [_printable(name) for name in folders])


def read_npz(path: Path, labels: Labels) -> Parts:
    """Arrays x and, where they are there, y, ids, classes, features and corrupted."""
    check_switch(labels)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise DataError(f"{path} is a single array: save it with np.savez(path, x=...)")
        with loaded as file:
            if "x" not in file:
                raise DataError(f"{path} has no array 'x': {nearest('x', list(file.files))}")
            names = ["x", "ids", "features", "corrupted"] + (["y", "classes"] if labels != "ignore" else [])
            arrays = {name: _npz_array(file, name, path) for name in names if name in file}
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except (*UNREADABLE, zlib.error, RuntimeError) as error:
        if isinstance(error, DataError):
            raise
        # NumPy takes what it does not know for pickled objects, and tells how to run them.
        reason = "no archive of arrays" if "pickle" in str(error) else " ".join(str(error).split())[:200]
        raise DataError(f"{path} cannot be read as an .npz file ({reason}): save it again with np.savez") from error
    if labels == "required" and "y" not in arrays:
        raise DataError(f"{path} has no labels: save them as the array 'y'")
    features = tuple(str(name) for name in arrays.get("features", ()))
    y, ids, classes, marks = (arrays.get(name) for name in ("y", "ids", "classes", "corrupted"))
    return Parts(arrays["x"], y, ids, classes, features, marks)


def _npz_array(file: Any, name: str, path: Path) -> np.ndarray:
    _check_npz_size(file, name, path)
    try:
        return np.asarray(file[name])
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"the array '{name}' in {path} is of Python objects, which are not read for safety: save it as "
            f"text or numbers, for example {name}={name}.astype(str), with '' where a label is missing"
        ) from error


def _check_npz_size(file: Any, name: str, path: Path) -> None:
    """Refuse an array that says it is larger than it is, or than the memory, before room is made for it."""
    archive: zipfile.ZipFile = file.zip
    member = name if name in archive.namelist() else f"{name}.npy"
    if member not in archive.namelist():
        return
    with archive.open(member) as content:
        claimed, there = _claimed(content), archive.getinfo(member).file_size
    if claimed > there:
        raise DataError(
            f"the array '{name}' in {path} is cut short or lies about its size: save it again with np.savez"
        )
    if claimed > memory_size():
        raise DataError(
            f"the array '{name}' in {path} has {claimed:,} bytes, more than the memory of this machine: save x with "
            "np.save as an .npy file, which stays on the disk"
        )


def read_array(content: bytes) -> np.ndarray:
    """The array in the bytes of an .npy file; one that says it is larger than they are is a ValueError."""
    if _claimed(io.BytesIO(content)) > len(content):
        raise ValueError("it is cut short, or lies about its size")
    return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))


def _claimed(content: IO[bytes]) -> int:
    """The bytes that an array has by its header; none if it is of Python objects, which NumPy refuses to read."""
    version = np.lib.format.read_magic(content)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(content)
    return 0 if dtype.hasobject else math.prod(shape) * dtype.itemsize


def _images_below(top: Path, endings: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """The image files as parts of their path below `top`; a link to a folder above itself is not followed."""
    waiting: list[tuple[tuple[str, ...], tuple[tuple[int, int], ...]]] = [((), (_identity(top),))]
    while waiting:
        parts, above = waiting.pop()
        try:
            with os.scandir(os.path.join(top, *parts)) as entries:
                visible = [entry for entry in entries if _visible(entry)]
        except OSError as error:
            raise DataError(f"cannot look into {error.filename} ({error.strerror}): mend its permissions") from error
        for entry in visible:
            here = (*parts, entry.name)
            if entry.is_dir():
                identity = _identity(entry.path)
                if identity not in above:
                    waiting.append((here, (*above, identity)))
            elif os.path.splitext(entry.name)[1].lower() in endings and (entry.is_file() or entry.is_symlink()):
                yield here  # a broken link too: decoding lists it among the unreadable


def _visible(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".")


def _identity(path: str | Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _printable(name: str) -> str:
    """File names need not be text; what is not would break the tables and pages written at the very end."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
