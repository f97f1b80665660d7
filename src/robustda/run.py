"""The run folder: everything a run leaves, written so that a crash at any moment costs time but never truth.

config.json        the settings and what the data were        environment.json   versions and hardware
metrics.csv        phase, step, metric, value                 tensorboard/       the same as curves
checkpoints/       to resume from; the last two are kept      trust.csv          what was made of each source example
model.safetensors, model.json   the model that predicts       predictions.csv    the target's classes
curves.safetensors   each source example's loss in each epoch, if asked for
decisions.csv      what a person decided about source examples, if that was given
tracking.json      the run's names at MLflow and W&B, and what they were told, if they are used
summary.json       the outcome in a few numbers               done               written last of all
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import shutil
import socket
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from robustda._version import __version__
from robustda.errors import RobustDAWarning, RunError

__all__ = [
    "Checkpoint",
    "Metrics",
    "RunFolder",
    "environment",
    "load_tensors",
    "save_tensors",
    "write_whole",
]

Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]


class RunFolder:
    """A folder that belongs to one run. Opening it takes a lock; a second process is refused."""

    def __init__(self, path: str | os.PathLike[str], config: Mapping[str, Any]) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.path / "lock")
        except OSError as error:
            raise RunError(
                f"cannot write to the run folder {self.path} ({error.strerror}): choose another --out"
            ) from error
        try:
            self._check_config(json.loads(json.dumps(config)))
        except BaseException:
            self.close()  # the traceback may live on and would hold the lock with it
            raise

    @property
    def done(self) -> bool:
        """Whether the run has ended well."""
        return (self.path / "done").exists()

    def close(self) -> None:
        """Give the lock back."""
        self._lock.close()

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file, whole or not at all."""
        write_whole(self.path / name, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())

    def write_csv(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a CSV file, whole or not at all."""
        with (
            _whole(self.path / name) as temporary,
            open(temporary, "w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)

    def save_checkpoint(self, tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
        """Keep a state to resume from: tensors in safetensors, the rest in JSON with the tensors' digest."""
        save_tensors_here = self.path / "checkpoints"
        save_tensors_here.mkdir(exist_ok=True)
        name = f"{note['phase_number']:02d}-{note['step']:08d}"
        temporary = save_tensors_here / f".{name}.{uuid.uuid4().hex}"
        temporary.mkdir()
        digest = save_tensors(temporary / "state.safetensors", tensors)
        write_whole(temporary / "state.json", json.dumps(note | {"digest": digest}).encode())
        _sync(temporary)
        final = save_tensors_here / name
        if final.exists():  # a damaged one that a resumed run has now made anew
            shutil.rmtree(final)
        os.replace(temporary, final)
        _sync(save_tensors_here)
        for old in self._checkpoints()[:-2]:
            shutil.rmtree(old, ignore_errors=True)

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest state that is whole; None at the start of a run."""
        for stray in (self.path / "checkpoints").glob(".*"):
            shutil.rmtree(stray, ignore_errors=True)
        for path in reversed(self._checkpoints()):
            try:
                note = json.loads((path / "state.json").read_text())
                return load_tensors(path / "state.safetensors", note["digest"]), note
            except (OSError, ValueError, KeyError) as error:
                import warnings

                warnings.warn(f"the checkpoint {path} is damaged ({error}): going back", RobustDAWarning, stacklevel=2)
                shutil.rmtree(path, ignore_errors=True)  # it must not count among the two that are kept
        return None

    def newest_checkpoint(self) -> Path | None:
        """Where a resumed run would take up; None at the start of a run."""
        return next(reversed(self._checkpoints()), None)

    def finish(self) -> None:
        """Mark the run as done and drop its checkpoints."""
        write_whole(self.path / "done", b"")
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def _checkpoints(self) -> list[Path]:
        return sorted(p for p in (self.path / "checkpoints").glob("[0-9]*") if p.is_dir())

    def _check_config(self, config: dict[str, Any]) -> None:
        path = self.path / "config.json"
        if not path.exists() or not (self.done or self._checkpoints()):
            # Nothing to lose yet: a run that failed at its start may be tried again with other settings.
            self.write_json("environment.json", environment())
            self.write_json("config.json", config)
            return
        try:
            before = json.loads(path.read_text())
        except ValueError as error:
            raise RunError(f"{path} cannot be read ({error}): choose another --out") from error
        changed = [f"{name} {old!r} → {new!r}" for name, old, new in _differences(before, config)]
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise RunError(
                f"{self.path} holds a run with other settings ({'; '.join(changed[:3])}{more}): "
                "choose another --out, or delete the folder to start anew"
            )


class Metrics:
    """The log of a run: in memory, and in metrics.csv if there is a folder. It holds no times: it is reproducible."""

    HEADER = ("phase", "step", "metric", "value")

    def __init__(self, path: Path | None, rows: int = 0) -> None:
        """Take up after the first `rows` entries: what an interrupted run wrote beyond its checkpoint is dropped."""
        self.rows: list[tuple[str, int, str, float]] = []
        self._path = path
        if path is not None:
            if path.exists() and rows:
                with open(path, newline="", encoding="utf-8") as file:
                    entries = list(csv.reader(file))[1 : rows + 1]
                self.rows = [(phase, int(step), metric, float(value)) for phase, step, metric, value in entries]
            lines = [",".join(self.HEADER), *map(_line, self.rows)]
            write_whole(path, ("\n".join(lines) + "\n").encode())

    def add(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Enter some values."""
        new = [(phase, step, metric, value) for metric, value in values.items()]
        self.rows += new
        if self._path is not None:
            with open(self._path, "a", encoding="utf-8") as file:
                file.writelines(_line(row) + "\n" for row in new)

    def sync(self) -> None:
        """Have what was entered safely on the disk: a checkpoint that counts on it comes next."""
        if self._path is not None:
            _sync(self._path)


def environment() -> dict[str, Any]:
    """Versions and hardware, to be able to tell later what a run ran on."""
    import numpy as np

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return {
        "robustda": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": device,
        "threads": torch.get_num_threads(),
        "command": sys.argv,
    }


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

    content = path.read_bytes()
    if digest is not None and hashlib.blake2b(content, digest_size=16).hexdigest() != digest:
        raise ValueError("its content is not what was written")
    try:
        return load(content)
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, even if the power goes."""
    with _whole(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


class _whole:
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
        _sync(self._temporary)
        os.replace(self._temporary, self._path)


def _sync(path: Path) -> None:
    """Have a file or a folder on the disk, not only in the system's memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(path: Path) -> IO[str]:
    """Hold the lock file for as long as this process lives: the system frees it whatever happens."""
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - it stays open while the lock is held
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        owner = file.read().strip() or "another process"
        file.close()
        raise RunError(f"{path.parent} is in use by {owner}: wait for it, or choose another --out") from error
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    return file


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    found: list[tuple[str, Any, Any]] = []
    for key in [*before, *(key for key in after if key not in before)]:
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new)
        elif old != new:
            found.append((key, old, new))
    return found


def _line(row: tuple[str, int, str, float]) -> str:
    phase, step, metric, value = row
    return f"{phase},{step},{metric},{value!r}"
