"""WebDataset shards: .tar files in which the files of one example share a name, such as 0001.jpg and 0001.cls.

Read once, in order, without unpacking: images go into the cache by their content, so no name in a shard is ever a
path on this machine. Members that pretend to be one are refused all the same, and nothing is unpickled.
"""

from __future__ import annotations

import glob
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from robustda.data.images import ImageFiles, image_extensions
from robustda.data.readers import UNREADABLE, Labels, Parts, check_switch, read_array
from robustda.data.spool import keep_file
from robustda.data.wording import listed, plural
from robustda.errors import DataError
from robustda.reading import parsed

__all__ = ["SHARD_ENDINGS", "expand", "read_shards"]

SHARD_ENDINGS = (".tar", ".tar.gz", ".tgz")
_LABELS = ("cls", "label", "class")
_LARGEST = 1 << 30


def expand(pattern: str) -> list[Path]:
    """The files that a pattern such as shard-{000..011}.tar or shards/*.tar names, in order."""
    if found := re.search(r"\{(\d+)\.\.(\d+)\}", pattern):
        first, last = found[1], found[2]
        numbers = range(int(first), int(last) + 1)
        if len(numbers) > 100_000:
            raise DataError(f"{pattern} names {len(numbers):,} shards: is that so?")
        names = [f"{pattern[: found.start()]}{n:0{len(first)}d}{pattern[found.end() :]}" for n in numbers]
        return [path for name in names for path in expand(name)]
    if any(sign in pattern for sign in "*?["):
        return [Path(path) for path in sorted(glob.glob(pattern))]
    return [Path(pattern)]


def read_shards(pattern: str, labels: Labels, *, label: str = "label", cache_dir: str | None = None) -> Parts:
    """Images (.jpg, .png, ...) or vectors (.npy), with the label as .cls, or under `label` in .json."""
    check_switch(labels)
    paths = expand(pattern)
    if not paths:
        raise DataError(f"there are no shards {pattern}: check the path")
    ids: list[str] = []
    inputs: list[Any] = []
    given: list[Any] = []
    bare: list[str] = []
    full: set[str] = set()
    for path in paths:
        for key, files in _examples(path):
            found = _input(path, key, files, cache_dir)
            if found is None:
                bare.append(key)
                continue
            inputs.append(found)
            full.add(key)
            ids.append(key if len(paths) == 1 else f"{path.name}/{key}")
            given.append(None if labels == "ignore" else _label(path, key, files, label))
    if not inputs:
        raise DataError(f"{pattern}: no image and no .npy in {plural(len(bare), 'example')} (first {listed(bare, 1)})")
    if bare:
        apart = any(key in full for key in bare)
        remedy = "the files of an example must stand together" if apart else "leave them out when you write the shards"
        raise DataError(
            f"{pattern}: {plural(len(bare), 'example')} of {len(ids) + len(bare):,} have no image and no .npy "
            f"(first {listed(bare, 3)}): {remedy}"
        )
    if len({isinstance(found, str) for found in inputs}) > 1:
        raise DataError(f"{pattern} holds both images and vectors: write them to shards of their own")
    known = any(value is not None for value in given)
    if labels == "required" and not known:
        raise DataError(f"{pattern} has no labels: add a .cls file to each example, or '{label}' to its .json")
    try:
        x: Any = ImageFiles(tuple(inputs)) if isinstance(inputs[0], str) else np.stack(inputs)
    except ValueError as error:
        raise DataError(f"{pattern}: the vectors are not all of one length ({error})") from error
    return Parts(x, given if known else None, ids)


def _examples(path: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Name and files by ending of each example, in the order of the shard."""
    if not path.is_file():
        raise DataError(f"there is no shard {path}: check the path")
    wanted = {ending.removeprefix(".") for ending in image_extensions()} | {*_LABELS, "json", "npy"}
    current, files = "", dict[str, bytes]()
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                _refuse_strange(path, member)
                place = PurePosixPath(member.name)
                if not member.isfile() or place.name.startswith((".", "__")):
                    continue
                stem, _, ending = place.name.partition(".")
                key = str(place.with_name(stem)) if stem else str(place)
                if key != current:
                    if current:
                        yield current, files
                    current, files = key, {}
                if ending.lower() in wanted:
                    content = archive.extractfile(member)
                    files[ending.lower()] = b"" if content is None else content.read()
        if current:
            yield current, files
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"the shard {path} cannot be read ({' '.join(str(error).split())}): write it again") from error


def _refuse_strange(path: Path, member: tarfile.TarInfo) -> None:
    place = PurePosixPath(member.name)
    outside = place.is_absolute() or ".." in place.parts or "\\" in member.name or "\0" in member.name
    if outside or not (member.isfile() or member.isdir()):
        raise DataError(
            f"the shard {path} holds {member.name!r}, which is a link or leads out of it: such a shard is not read"
        )
    if member.size > _LARGEST:
        raise DataError(f"the shard {path} holds {member.name!r} of {member.size:,} bytes: too large for an example")


def _input(path: Path, key: str, files: dict[str, bytes], cache_dir: str | None) -> Any:
    for ending, content in files.items():
        if f".{ending}" in image_extensions():
            return keep_file(content, f".{ending}", cache_dir)
    if "npy" not in files:
        return None
    try:
        return np.asarray(read_array(files["npy"]), dtype=np.float32).reshape(-1)
    except UNREADABLE as error:
        raise DataError(f"the shard {path}: {key}.npy is no array of numbers ({error})") from error


def _label(path: Path, key: str, files: dict[str, bytes], label: str) -> Any:
    try:
        for ending in _LABELS:
            if ending in files:
                text = files[ending].decode().strip()
                whole = re.fullmatch(r"-?(0|[1-9]\d{0,14})", text)
                return None if text in ("", "-1") else int(text) if whole else text
        if "json" in files:
            content = parsed(files["json"], f"{key}.json")
            names = (label, *_LABELS, "y") if isinstance(content, dict) else ()
            value = next((content[name] for name in names if name in content), None)
            if isinstance(value, list | dict):
                raise ValueError("the label is a list")
            return value
    except ValueError as error:
        raise DataError(f"the shard {path}: the label of {key} cannot be read ({error})") from error
    return None
