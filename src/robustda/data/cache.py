"""Where decoded images are kept: entries keyed by content, whole or absent, shared without locks.

<cache>/states/<paths>.npy    size, times and inode of each file of one list, and the digest of its content:
                              spares reading every file again at each start; losing it only costs time
<cache>/images/<key>/         pixels.raw and meta.json, written elsewhere first and renamed into place; then what
                              backbones made of these images (see `robustda.description`)
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
import stat
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robustda.data.parallel import in_order
from robustda.errors import DataError
from robustda.files import sync
from robustda.reading import read_object

__all__ = [
    "Content",
    "Entry",
    "cache_folder",
    "content_digest",
    "entry_key",
    "entry_of",
    "file_contents",
    "file_state",
    "fill_entry",
    "open_entry",
]

FORMAT = 1  # raise it when what a key stands for changes: reading, resizing, the layout of an entry
SETTLED_NS = 2_000_000_000  # a file changed later than this before we looked may change again unseen
ABANDONED_S = 3600  # a half-filled entry that nobody wrote to for so long has no owner any more
State = tuple[int, ...]


class Content(NamedTuple):
    """What is in a file: its state when we looked, the digest of its bytes, or why there is none."""

    state: State
    digest: bytes
    trouble: str


class Entry(NamedTuple):
    """Decoded images: pixels of the readable ones (None without any), their rows, and why not the rest."""

    pixels: np.memmap[Any, np.dtype[np.uint8]] | None
    kept: npt.NDArray[np.int64]
    bad: list[tuple[int, str]]


def cache_folder(given: str | Path | None = None) -> Path:
    """The folder given, else $ROBUSTDA_CACHE, else robustda in the user's cache folder."""
    chosen = given or os.environ.get("ROBUSTDA_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "robustda"


def file_contents(
    paths: Sequence[str], folder: Path, *, workers: int | None = None, progress: bool = False
) -> list[Content]:
    """The content of every file; only those whose size, times or inode have changed are read again."""
    looked_at = time.time_ns()
    chunks = [paths[start : start + 256] for start in range(0, len(paths), 256)]
    found = in_order(lambda chunk: [file_state(path) for path in chunk], chunks, workers=workers)
    states = np.array([state for chunk in found for state in chunk], dtype=np.int64).reshape(-1, 4)
    listing = hashlib.blake2b(b"\0".join(os.fsencode(path) for path in paths), digest_size=16).hexdigest()
    index_file = folder / "states" / f"{listing}.npy"
    index = _read_index(index_file, len(paths))
    stale = np.flatnonzero((index["state"] != states).any(axis=1))
    troubles: dict[int, str] = {}
    describe = "Reading images" if progress else None
    hashed = in_order(lambda row: _digest(paths[row]), stale.tolist(), workers=workers, describe=describe)
    for row, digest in zip(stale.tolist(), hashed, strict=True):
        if isinstance(digest, str):
            troubles[row] = digest
        else:
            index["state"][row], index["digest"][row] = states[row], np.frombuffer(digest, dtype=np.uint8)
    contents = [
        Content(tuple(state), b"" if row in troubles else digest.tobytes(), troubles.get(row, ""))
        for row, (state, digest) in enumerate(zip(states.tolist(), index["digest"], strict=True))
    ]
    if len(stale):
        unsettled = looked_at - np.maximum(states[:, 1], states[:, 2]) < SETTLED_NS
        index["state"][unsettled] = _UNKNOWN
        _write_index(index_file, index)
    return contents


def file_state(path: str) -> State:
    """What changes when a file does: size, both times and inode."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return _MISSING
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino & (2**63 - 1)


def entry_key(size: int, parts: Iterable[tuple[bytes, str]]) -> str:
    """The name of an entry, from all that its pixels depend on: content and edit of each file, in order."""
    digest = hashlib.blake2b(f"robustda images {FORMAT} {size}".encode(), digest_size=20)
    for content, edit in parts:
        text = edit.encode()
        digest.update(b"%d:%b%d:%b" % (len(content), content, len(text), text))
    return digest.hexdigest()


def content_digest(array: np.ndarray) -> bytes:
    """Of all values of an array.

    Pixels that are mapped from an entry are known by its name, which is made of the files' content; some of them are
    looked at all the same, since another decoder may have filled it.
    """
    digest = hashlib.blake2b(f"{array.dtype} {array.shape}".encode(), digest_size=16)
    mapped = array.filename if isinstance(array, np.memmap) else None
    if mapped is not None and Path(mapped).name == "pixels.raw":
        digest.update(Path(mapped).parent.name.encode())
        array = array[np.unique(np.linspace(0, len(array) - 1, 200).astype(int))]
    rows = max(1, (1 << 24) // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        digest.update(np.ascontiguousarray(array[start : start + rows]).data)
    return digest.digest()


def entry_of(array: np.ndarray) -> Path | None:
    """The folder of the entry that these pixels are, all of them and in order; None if they are something else."""
    mapped = array.filename if isinstance(array, np.memmap) else None
    if mapped is None or Path(mapped).name != "pixels.raw" or not array.flags.c_contiguous:
        return None
    try:
        return Path(mapped).parent if array.nbytes == os.path.getsize(mapped) else None
    except OSError:
        return None


def open_entry(folder: Path, key: str, decoder: str) -> Entry | None:
    """The entry, or None where there is none that can be trusted."""
    return _open(folder / "images" / key, decoder)


def fill_entry(
    folder: Path, key: str, decoder: str, size: int, rows: Generator[npt.NDArray[np.uint8] | str, None, None]
) -> Entry:
    """Write what `rows` yields, pixels or why there are none, and give it the name `key` when it is whole.

    Processes that fill the same entry work apart; the first to finish wins, the others take what they find.
    """
    parent = folder / "images"
    own = parent / f".filling-{uuid.uuid4().hex}"
    with contextlib.closing(rows), _disk_trouble(folder):
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        own.mkdir()
        try:
            bad: list[tuple[int, str]] = []
            count = 0
            with open(own / "pixels.raw", "wb") as file:
                for count, row in enumerate(rows, start=1):
                    if isinstance(row, str):
                        bad.append((count - 1, row))
                    else:
                        file.write(np.ascontiguousarray(row, dtype=np.uint8).data)
                file.flush()
                os.fsync(file.fileno())
            if len(bad) == count:
                return Entry(None, np.empty(0, dtype=np.int64), bad)
            _write_meta(own, {"count": count, "size": size, "bad": bad, "decoder": decoder})
            return _publish(own, parent / key, decoder)
        finally:
            shutil.rmtree(own, ignore_errors=True)


_MISSING: State = (-1, -1, -1, -1)
_UNKNOWN: State = (-2, -2, -2, -2)  # equal to no state a file can have, a missing file included
_INDEX = np.dtype([("state", "<i8", (4,)), ("digest", "u1", (16,))])


def _digest(path: str) -> bytes | str:
    """Of the bytes of a file, or why they cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for ever
            return "not a file"
        with open(path, "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
    except (OSError, ValueError) as error:
        return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _read_index(path: Path, count: int) -> np.ndarray:
    try:
        index = np.load(path, allow_pickle=False)
        if index.dtype == _INDEX and index.shape == (count,):
            return np.asarray(index)
    except (OSError, ValueError, EOFError):
        pass
    index = np.zeros(count, dtype=_INDEX)
    index["state"] = _UNKNOWN
    return index


def _write_index(path: Path, index: np.ndarray) -> None:
    own = path.with_name(f".{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(own, "wb") as file:
                np.save(file, index, allow_pickle=False)
            os.replace(own, path)
        finally:
            own.unlink(missing_ok=True)
    except OSError:
        pass  # a cache that may only be read still serves the entries it has


def _open(place: Path, decoder: str) -> Entry | None:
    raw = place / "pixels.raw"
    try:
        meta = read_object(place / "meta.json")
        count, size = int(meta["count"]), int(meta["size"])
        bad = [(int(row), str(reason)) for row, reason in meta["bad"]]
        if size < 1 or count * size * size * 3 > raw.stat().st_size + len(bad) * size * size * 3:
            return None
        kept = np.setdiff1d(np.arange(count), np.array([row for row, _ in bad], dtype=np.int64))
        shape = (len(kept), size, size, 3)
        if meta["bytes"] != raw.stat().st_size or meta["bytes"] != math.prod(shape) or meta["ends"] != _ends(raw):
            return None
        if bad and meta["decoder"] != decoder:  # another Pillow may read what this one could not
            return None
        return Entry(np.memmap(raw, np.uint8, "r", shape=shape), kept, bad)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _write_meta(own: Path, meta: dict[str, Any]) -> None:
    raw = own / "pixels.raw"
    meta |= {"format": FORMAT, "bytes": raw.stat().st_size, "ends": _ends(raw)}
    with open(own / "meta.json", "w") as file:
        json.dump(meta, file)
        file.flush()
        os.fsync(file.fileno())
    sync(own)


def _ends(path: Path) -> str:
    """Digest of the first and last 64 KiB: cheap, and shows blocks that never reached the disk."""
    with open(path, "rb") as file:
        first = file.read(1 << 16)
        file.seek(-min(1 << 16, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return hashlib.blake2b(first + file.read(), digest_size=16).hexdigest()


def _publish(own: Path, place: Path, decoder: str) -> Entry:
    """Rename a whole entry into place, or take the one that another process has put there meanwhile."""
    entry = _open(own, decoder)  # mapped before it has a public name, so that nobody can take it from us
    if entry is None or entry.pixels is None:
        raise DataError(f"what was written to the image cache in {own} reads back differently: check that disk")
    while True:
        try:
            os.rename(own, place)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            theirs = _open(place, decoder)
            if theirs is not None:
                return theirs
            # What stands there is damaged: put it aside in one step, so that nobody sees half of it.
            aside = own.with_name(f".filling-{uuid.uuid4().hex}")
            with contextlib.suppress(FileNotFoundError):
                os.rename(place, aside)
                shutil.rmtree(aside, ignore_errors=True)
        else:
            sync(own.parent)
            entry.pixels.filename = str(place / "pixels.raw")
            return entry


def _sweep(parent: Path) -> None:
    """Remove what processes that were killed while filling have left."""
    for left in parent.glob(".filling-*"):
        with contextlib.suppress(OSError):
            newest = max(part.stat().st_mtime for part in (left, *left.iterdir()))
            if time.time() - newest > ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _disk_trouble(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write the image cache in {folder} ({error.strerror or error}): make room there, "
            "or set ROBUSTDA_CACHE to a folder with room that you may write to"
        ) from error
