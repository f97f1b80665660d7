"""Stages that several runs have in common, done once: RDA's curriculum does not know the target it is for.

What a stage leaves for the next one is kept in a folder under a key that is made of all its outcome depends on: the
method and those of its settings that the stage uses, the seed, and the source data. Runs that share the folder and the
key take it over as if they had done it themselves, with its metrics and its seconds. A run that comes while another one
is at it waits for that one.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from robustda._version import __version__
from robustda.errors import RobustDAWarning, RunError
from robustda.files import Lock, load_tensors, rest, save_tensors, write_whole
from robustda.signals import StopRequest

if TYPE_CHECKING:
    from robustda.methods.base import Method

__all__ = ["Stage", "StageStore"]

Entries = list[tuple[int, dict[str, float]]]


@dataclass(frozen=True)
class Stage:
    """What a stage came to: what it left in the task's memory, what it logged, and how long it took."""

    memory: dict[str, Tensor]
    entries: Entries
    seconds: float


class StageStore:
    """A folder of stages; without a folder nothing is ever found or kept."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder)

    def key(self, method: Method, stage: str, source: dict[str, Any]) -> str | None:
        """The name of a stage in the store; None where it is not to be shared."""
        if self._folder is None or stage not in method.shared_stages:
            return None
        later = method.shared_stages[stage]
        settings = {name: value for name, value in method.record().items() if name not in later}
        about = {"robustda": __version__, "method": method.name, "stage": stage, "params": settings, "data": source}
        return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=10).hexdigest()

    @contextmanager
    def held(self, key: str | None, stop: StopRequest | None = None) -> Iterator[None]:
        """Be the only one at work on this stage, where the system has locks; who waits for it can be stopped."""
        if self._folder is None or key is None:
            yield
            return

        def pause() -> None:
            if stop:
                stop.obey()
            rest()

        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = Lock(self._folder / f"{key}.lock", otherwise="choose another folder for --stages", pause=pause)
        except OSError as error:
            reason = error.strerror or str(error)
            raise RunError(
                f"cannot keep stages in {self._folder} ({reason}): choose another folder for --stages"
            ) from error
        with closing(lock):
            yield

    def load(self, key: str | None) -> Stage | None:
        """The stage, if it is there and sound."""
        if self._folder is None or key is None:
            return None
        try:
            about = json.loads((self._folder / f"{key}.json").read_text())
            tensors = load_tensors(self._folder / f"{key}.safetensors", about["digest"])
            entries = [(int(step), dict(values)) for step, values in about["entries"]]
            return Stage(tensors, entries, float(about["seconds"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # it is made again

    def save(self, key: str | None, stage: Stage) -> None:
        """Keep a stage. The note is written last: without it there is no stage."""
        if self._folder is None or key is None:
            return
        try:
            digest = save_tensors(self._folder / f"{key}.safetensors", stage.memory)
            about = {"digest": digest, "entries": stage.entries, "seconds": stage.seconds}
            write_whole(self._folder / f"{key}.json", json.dumps(about).encode())
        except OSError as error:  # the run that has done it needs it no more
            reason = error.strerror or str(error)
            message = f"cannot keep a stage in {self._folder} ({reason}): this run goes on, others will do it again"
            warnings.warn(message, RobustDAWarning, stacklevel=2)
