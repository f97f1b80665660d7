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

import contextlib
import csv
import hashlib
import itertools
import json
import os
import platform
import shutil
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from robustda._version import __version__
from robustda.errors import RobustDAWarning, RunError
from robustda.files import Lock, disk_trouble, load_tensors, save_tensors, seal, sync, unsealed, whole, write_whole
from robustda.reading import read_object

__all__ = [
    "Checkpoint",
    "Metrics",
    "RunFolder",
    "environment",
]

Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]


class RunFolder:
    """A folder that belongs to one run. Opening it takes a lock; a second process is refused."""

    others: ClassVar[dict[str, str]] = {"study.db": "a study", "candidates": "a run of --method auto"}
    """What is of another kind, by a file that it has."""

    def __init__(self, path: str | os.PathLike[str], config: Mapping[str, Any]) -> None:
        self.path = Path(path)
        for name, kind in self.others.items():
            if (self.path / name).exists():
                raise RunError(f"{self.path} holds {kind}: choose another --out, or delete the folder to start anew")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = Lock(self.path / "lock")
        except OSError as error:
            raise RunError(
                f"cannot write to the run folder {self.path} ({error.strerror}): choose another --out"
            ) from error
        try:
            with self.disk_trouble():
                self._config_digest = self._check_config(json.loads(json.dumps(config)))
            if self.done:  # killed right after it was
                shutil.rmtree(self.path / "checkpoints", ignore_errors=True)
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

    def disk_trouble(self) -> contextlib.AbstractContextManager[None]:
        """Say in one line that the folder cannot be written to any more: what is in it is whole all the same."""
        return disk_trouble(self.path)

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file, whole or not at all."""
        write_whole(self.path / name, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())

    def write_csv(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a CSV file, whole or not at all."""
        with (
            whole(self.path / name) as temporary,
            open(temporary, "w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)

    def save_checkpoint(self, tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
        """Keep a state to resume from: tensors in safetensors, the rest in JSON with the digests of all of it."""
        parent = self.path / "checkpoints"
        name = f"{note['phase_number']:02d}-{note['step']:08d}"
        temporary = parent / f".{name}.{uuid.uuid4().hex}"
        try:
            parent.mkdir(exist_ok=True)
            temporary.mkdir()
            digest = save_tensors(temporary / "state.safetensors", tensors)
            size = (temporary / "state.safetensors").stat().st_size
            sealed = seal(note | {"digest": digest, "bytes": size, "config": self._config_digest})
            write_whole(temporary / "state.json", json.dumps(sealed).encode())
            final = parent / name
            if final.exists():  # a damaged one that a resumed run has now made anew
                shutil.rmtree(final)
            os.replace(temporary, final)
            sync(parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # a full disk needs the room
        for old in self._checkpoints()[:-2]:
            shutil.rmtree(old, ignore_errors=True)

    def load_checkpoint(self) -> Checkpoint | None:
        """The newest state that is whole; None at the start of a run."""
        for stray in (self.path / "checkpoints").glob(".*"):
            shutil.rmtree(stray, ignore_errors=True)
        for path in reversed(self._checkpoints()):
            try:
                return self._read_checkpoint(path)
            except (OSError, ValueError, KeyError) as error:
                if isinstance(error, RunError):
                    raise
                import warnings

                warnings.warn(f"the checkpoint {path} is damaged ({error}): going back", RobustDAWarning, stacklevel=2)
                shutil.rmtree(path, ignore_errors=True)  # it must not count among the two that are kept
        return None

    def _read_checkpoint(self, path: Path) -> Checkpoint:
        note = unsealed(read_object(path / "state.json"))
        if note.get("config") != self._config_digest:
            raise RunError(f"{path} is of a run with other settings: choose another --out, or delete the folder")
        file = path / "state.safetensors"
        if file.stat().st_size != note["bytes"]:
            raise ValueError(f"{file.name} has {file.stat().st_size:,} bytes in place of {note['bytes']:,}")
        return load_tensors(file, note["digest"]), note

    def newest_checkpoint(self) -> Path | None:
        """Where a resumed run would take up; None at the start of a run."""
        return next(reversed(self._checkpoints()), None)

    def finish(self) -> None:
        """Mark the run as done and drop its checkpoints."""
        write_whole(self.path / "done", b"")
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def _checkpoints(self) -> list[Path]:
        return sorted(p for p in (self.path / "checkpoints").glob("[0-9]*") if p.is_dir())

    def _check_config(self, config: dict[str, Any]) -> str:
        """Write the settings down, or compare them with those of the run that is here; returns their digest."""
        digest = hashlib.blake2b(json.dumps(config, sort_keys=True).encode(), digest_size=16).hexdigest()
        path = self.path / "config.json"
        if not path.exists() or not (self.done or self._checkpoints()):
            # Nothing to lose yet: a run that failed at its start may be tried again with other settings. Where only
            # this file was lost, its digest in the checkpoints tells whether they are of the same run.
            self.write_json("environment.json", environment())
            self.write_json("config.json", config)
            return digest
        try:
            before = read_object(path)
        except ValueError as error:
            raise RunError(f"{path} cannot be read ({error}): choose another --out") from error
        changed = [f"{name} {old!r} → {new!r}" for name, old, new in _differences(before, config)]
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise RunError(
                f"{self.path} holds a run with other settings ({'; '.join(changed[:3])}{more}): "
                "choose another --out, or delete the folder to start anew"
            )
        return digest


class Metrics:
    """The log of a run: in memory, and in metrics.csv if there is a folder. It holds no times: it is reproducible."""

    HEADER = ("phase", "step", "metric", "value")

    def __init__(self, path: Path | None, rows: int = 0, digest: str | None = None) -> None:
        """Take up after the first `rows` entries: what an interrupted run wrote beyond its checkpoint is dropped.

        Those entries must be the ones that were there when the checkpoint was made, which `digest` tells.
        """
        self.rows: list[tuple[str, int, str, float]] = []
        self._path = path
        self._hash = hashlib.blake2b(digest_size=16)
        if path is not None:
            if rows:
                self._take_up(path, rows, digest)
            lines = [",".join(self.HEADER), *map(_line, self.rows)]
            write_whole(path, ("\n".join(lines) + "\n").encode())

    @property
    def digest(self) -> str:
        """Of all entries so far."""
        return self._hash.copy().hexdigest()

    def _take_up(self, path: Path, rows: int, digest: str | None) -> None:
        try:
            with open(path, newline="", encoding="utf-8", errors="replace") as file:
                entries = list(itertools.islice(csv.reader(file), 1, rows + 1))
            self.rows = [(phase, int(step), metric, float(value)) for phase, step, metric, value in entries]
            self._hash.update("".join(_line(row) + "\n" for row in self.rows).encode())
            whole = len(self.rows) == rows and digest in (None, self.digest)
        except (OSError, ValueError, csv.Error):
            whole = False
        if not whole:
            raise RunError(
                f"{path} has lost or changed some of the {rows:,} entries that its run had made: put them back, or "
                "delete the folder to start anew"
            )

    def add(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Enter some values."""
        new = [(phase, step, metric, value) for metric, value in values.items()]
        lines = "".join(_line(row) + "\n" for row in new)
        self.rows += new
        self._hash.update(lines.encode())
        if self._path is not None:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(lines)

    def sync(self) -> None:
        """Have what was entered safely on the disk: a checkpoint that counts on it comes next."""
        if self._path is not None:
            sync(self._path)


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
