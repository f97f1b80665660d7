"""Files that are whole or not there at all, tensors and notes that can be checked, locks that end with a process."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustda.errors import RunError, RunInUse
from robustda.reading import check_tensor_file

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Lock",
    "disk_trouble",
    "load_tensors",
    "rest",
    "save_tensors",
    "seal",
    "sync",
    "unsealed",
    "wait_until_free",
    "whole",
    "write_whole",
]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, even if the power goes."""
    with whole(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


class whole:
    """A temporary name beside `path`, renamed to it at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")

    def __enter__(self) -> Path:
        return self._temporary

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._temporary.unlink(missing_ok=True)
            return
        try:
            sync(self._temporary)
            os.replace(self._temporary, self._path)
            sync(self._path.parent)  # or the name may be lost with the power
        except BaseException:
            self._temporary.unlink(missing_ok=True)
            raise


def sync(path: Path) -> None:
    """Have a file or a folder on the disk, not only in the system's memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> str:
    """Write tensors to a safetensors file, whole or not at all; returns the file's digest."""
    from safetensors.torch import save

    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    write_whole(path, content)
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def load_tensors(path: Path, digest: str | None = None) -> dict[str, Tensor]:
    """Read tensors, and check that they are those that were written."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    if digest is None:
        check_tensor_file(path)
    else:
        with open(path, "rb") as file:  # in pieces: what is not ours takes up no memory
            found = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        if found != digest:
            raise ValueError("its content is not what was written")
        check_tensor_file(path)
    try:
        return load(path.read_bytes())
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def seal(note: dict[str, Any]) -> dict[str, Any]:
    """A note with the digest of all that is in it."""
    content = json.dumps({name: value for name, value in note.items() if name != "seal"}, sort_keys=True)
    return note | {"seal": hashlib.blake2b(content.encode(), digest_size=16).hexdigest()}


def unsealed(note: dict[str, Any]) -> dict[str, Any]:
    """The note, if it is what was sealed."""
    if seal(note)["seal"] != note.get("seal"):
        raise ValueError("its note is not what was written")
    return note


class Lock:
    """A lock file, held until it is closed or the process ends, however that happens.

    Where it is taken, `RunInUse` says by whom; with `pause`, that is called and the lock is tried again until it is
    free. Where a file system knows no locks, the owner that the file names decides.
    """

    def __init__(
        self, path: Path, *, otherwise: str = "choose another --out", pause: Callable[[], None] | None = None
    ) -> None:
        self._path, self._otherwise = path, otherwise
        self._file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - it stays open while the lock is held
        try:
            while (refusal := self._refusal()) is not None:
                if pause is None or not isinstance(refusal, RunInUse):
                    raise refusal
                pause()
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            self._file.flush()
        except BaseException:
            with contextlib.suppress(OSError):  # what could not be written is tried once more when it is closed
                self._file.close()
            raise

    def close(self) -> None:
        """Give the lock back."""
        if not self._file.closed:
            with contextlib.suppress(OSError):  # the disk may be one that may only be read by now
                self._file.truncate(0)
            self._file.close()

    def _refusal(self) -> RunError | None:
        """Take the lock; if another process has it, what there is to say about that."""
        try:
            import fcntl
        except ImportError:  # no such locks on this system
            return None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        except OSError as error:
            self._file.seek(0)
            owner = " ".join(self._file.read(200).split())
            text = f"{self._path.parent} is in use by {owner or 'another process'}: wait for it, or {self._otherwise}"
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return RunInUse(text)
            return RunError(f"{text} (if that is over, delete {self._path})") if _alive(owner) else None


def wait_until_free(folder: Path) -> None:
    """Wait for the process that holds the lock of a run folder to end, or to give it back."""
    Lock(folder / "lock", pause=rest).close()


def rest() -> None:
    """Sleep a little, between two looks at what another process does."""
    time.sleep(0.1)


@contextlib.contextmanager
def disk_trouble(path: Path) -> Iterator[None]:
    """Say in one line that a folder cannot be written to any more: what is in it is whole all the same."""
    try:
        yield
    except OSError as error:
        remedy = "the same command takes the run up again once there is room"
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            remedy = "the same command takes the run up again once that is allowed"
        elif error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remedy = "check that disk; the same command takes the run up again"
        reason = error.strerror or str(error)
        raise RunError(f"cannot write to the run folder {path} ({reason}): {remedy}") from error


def _alive(owner: str) -> bool:
    """Whether the owner that a lock file names may still be at work, on file systems that know no locks.

    A process of another host cannot be looked for: it is taken to be alive.
    """
    named = re.fullmatch(r"process (\d+) on (\S+)", owner)
    if named is None or named[2] != socket.gethostname():
        return named is not None
    try:
        os.kill(int(named[1]), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return int(named[1]) != os.getpid()
