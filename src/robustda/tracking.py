"""Where the curves of a run go beside metrics.csv: TensorBoard, MLflow, Weights & Biases, or several of them.

A tracker starts, takes entries of the log, and ends. What it is about is known here alone: the training loop hands
its entries to `Tracking`, which sees to it that

- a resumed run goes on in the same MLflow or W&B run: its id stands in the run folder, in tracking.json;
- no entry is told twice: the same file says how many entries of the log each tracker was given, and those are
  passed over when the steps after a checkpoint are done again. What a tracker missed is told to it then;
- a tracker that fails is left alone for the rest of the run, with one warning. The training goes on.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from robustda.aside import Aside
from robustda.errors import ConfigError, RobustDAWarning

__all__ = ["TRACKERS", "About", "Tracker", "Tracking", "tracker_names"]

Row = tuple[str, int, str, float]
"""An entry of metrics.csv: phase, step, metric, value."""


@dataclass(frozen=True)
class About:
    """What a tracker is told about a run."""

    name: str
    settings: Mapping[str, Any]
    folder: Path | None = None


class Tracker(Protocol):
    """One place where curves go. Any of these may raise: it is not called again then."""

    keeps: bool
    """Whether what it was told before a restart is still there, and must not be told again."""

    def start(self, about: About, identity: str | None) -> str:
        """Begin a run, or take up the one called `identity`; returns what it is called."""

    def log(self, phase: str, step: int, at: int, values: Mapping[str, float]) -> None:
        """Take one entry: `step` counts in the phase, `at` through all phases."""

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        """End well, with the summary, or not (None)."""


class TensorBoard:
    """Event files in the run folder. They are written anew from the log on a restart: what an interrupted run wrote
    after its checkpoint, or had not written yet, needs no thought then."""

    keeps = False

    def start(self, about: About, identity: str | None) -> str:
        assert about.folder is not None
        self._path = about.folder / "tensorboard"
        self._waiting: list[tuple[str, float, int]] = []
        self._opening: Aside[Any] | None = None
        shutil.rmtree(self._path, ignore_errors=True)
        return ""

    def log(self, phase: str, step: int, at: int, values: Mapping[str, float]) -> None:
        self._waiting += [(f"{phase}/{name}", value, step) for name, value in values.items()]
        # To import it takes seconds on some machines: training is under way by now, and goes on.
        self._opening = self._opening or Aside(self._open)
        if self._opening.done:
            self._write()

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        self._opening = self._opening or Aside(self._open)
        self._write()
        self._opening.result().close()

    def _open(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self._path))

    def _write(self) -> None:
        assert self._opening is not None
        writer = self._opening.result()
        for entry in self._waiting:
            writer.add_scalar(*entry)
        self._waiting = []


class MLflow:
    """A run in the experiment robustda (or MLFLOW_EXPERIMENT_NAME) at MLFLOW_TRACKING_URI."""

    keeps = True

    def start(self, about: About, identity: str | None) -> str:
        # A server that is down must not hold up a training for minutes at each entry; who wants that can set it.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        for name in ("mlflow.store.db.utils", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = MlflowClient()
        if identity is not None:
            self._client.get_run(identity)
            self._client.update_run(identity, status="RUNNING")
            self._run = identity
            return identity
        called = os.environ.get("MLFLOW_EXPERIMENT_NAME", "robustda")
        known = self._client.get_experiment_by_name(called)
        experiment = self._client.create_experiment(called) if known is None else known.experiment_id
        self._run = self._client.create_run(experiment, run_name=about.name).info.run_id
        settings = [Param(key, str(value)[:500]) for key, value in about.settings.items()]
        for first in range(0, len(settings), 100):  # more at once are refused
            self._client.log_batch(self._run, params=settings[first : first + 100])
        return self._run

    def log(self, phase: str, step: int, at: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        metrics = [Metric(f"{phase}/{name}", value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        for key, value in _numbers(summary or {}).items():
            self._client.log_metric(self._run, f"final/{key}", value)
        self._client.set_terminated(self._run, "KILLED" if summary is None else "FINISHED")


class WandB:
    """A run in the project robustda (or WANDB_PROJECT); WANDB_MODE=offline writes into the run folder only."""

    keeps = True

    def start(self, about: About, identity: str | None) -> str:
        import wandb

        identity = identity or uuid.uuid4().hex[:12]
        offline = os.environ.get("WANDB_MODE", "") in ("offline", "dryrun")
        # W&B names its folders by the second, and writes over what a part of this run from the same second has left.
        while about.folder and list((about.folder / "wandb").glob(f"*-{time.strftime('%Y%m%d_%H%M%S')}-{identity}")):
            time.sleep(0.05)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "robustda"),
            name=about.name,
            id=identity,
            # Offline there is nobody to ask for the run; parts with the same id become one when they are synced.
            resume=None if offline else "allow",
            dir=str(about.folder) if about.folder else None,
            config=dict(about.settings),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        return identity

    def log(self, phase: str, step: int, at: int, values: Mapping[str, float]) -> None:
        told = {f"{phase}/{name}": value for name, value in values.items()}
        self._run.log({**told, f"{phase}/step": step}, step=at)

    def finish(self, summary: Mapping[str, Any] | None) -> None:
        for key, value in _numbers(summary or {}).items():
            self._run.summary[f"final/{key}"] = value
        self._run.finish(exit_code=0 if summary is not None else 1)


TRACKERS: dict[str, tuple[Callable[[], Tracker], str]] = {
    "tensorboard": (TensorBoard, "tensorboard"),
    "mlflow": (MLflow, "mlflow"),
    "wandb": (WandB, "wandb"),
}
"""Each tracker by its name, with the package that it needs, which is also the name of the extra."""


def tracker_names(given: str | Sequence[str]) -> list[str]:
    """The trackers that are meant, checked: names with commas between them, or a list of names; none for no tracker.

    >>> tracker_names("tensorboard,mlflow"), tracker_names("none")
    (['tensorboard', 'mlflow'], [])
    """
    texts = given.strip("[] ").split(",") if isinstance(given, str) else given
    names = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
    for name in names:
        if name not in (*TRACKERS, "none"):
            raise ConfigError(f"there is no tracker {name!r}: choose among {', '.join(TRACKERS)}, or none")
    if "none" in names and len(names) > 1:
        raise ConfigError("track is none and others: give none alone")
    names = [name for name in names if name != "none"]
    for name in names:
        if importlib.util.find_spec(TRACKERS[name][1]) is None:
            raise ConfigError(f"tracking with {name} needs a package that is not here: pip install 'robustda[{name}]'")
    return names


@dataclass
class _Post:
    """A tracker at work, and how many entries of the log it was given."""

    name: str
    tracker: Tracker
    given: int = 0
    identity: str | None = None
    works: bool = True


@dataclass
class Tracking:
    """The trackers of one run."""

    names: Sequence[str]
    about: About
    _posts: list[_Post] = field(default_factory=list)
    _position: int = 0
    _before: int = 0
    _phase: str = ""
    _last: int = 0

    def start(self, rows: Sequence[Row], *, resumed: bool) -> None:
        """Begin, after what the log holds already: a tracker is told what it has missed of it."""
        notes = self._read() if resumed else {}
        for name in self.names:
            if name == "tensorboard" and self.about.folder is None:
                continue
            note = notes.get(name, {})
            post = _Post(name, TRACKERS[name][0](), int(note.get("rows", 0)), note.get("id"))
            self._posts.append(post)
            self._try(post, self._begin, post)
        self._write()
        for phase, step, values in _entries(rows):
            self.add(phase, step, values)

    def add(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Tell every tracker that has not heard it."""
        if phase != self._phase:
            self._before, self._phase = self._before + self._last, phase
        self._last = step
        self._position += len(values)
        for post in self._posts:
            if not post.works or self._position <= post.given:
                continue
            before, post.given = post.given, self._position
            if post.tracker.keeps:
                self._write()  # before it is told: what is killed in between rather lacks an entry than has it twice
            if not self._try(post, post.tracker.log, phase, step, self._before + step, values):
                post.given = before
                self._write()

    def finish(self, summary: Mapping[str, Any] | None = None) -> None:
        """End: well, with the summary of the run, or not."""
        for post in self._posts:
            if post.works:
                self._try(post, post.tracker.finish, summary)
        self._posts = []

    def _begin(self, post: _Post) -> None:
        identity = post.tracker.start(self.about, post.identity)
        post.given = post.given if identity == post.identity else 0
        post.identity = identity

    def _try(self, post: _Post, call: Callable[..., None], *given: Any) -> bool:
        try:
            call(*given)
            return True
        except Exception as error:  # whatever a server or its client come up with
            post.works = False
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            message = (
                f"{post.name} failed and is left alone from here on ({reason}); the run goes on, metrics.csv has all"
            )
            warnings.warn(message, RobustDAWarning, stacklevel=3)
            return False

    def _read(self) -> dict[str, Any]:
        if self.about.folder is None:  # a run in memory, or a rank that is not the first
            return {}
        try:
            return dict(json.loads((self.about.folder / "tracking.json").read_text()))
        except (OSError, ValueError, TypeError):
            return {}

    def _write(self) -> None:
        posts = {p.name: {"id": p.identity, "rows": p.given} for p in self._posts if p.tracker.keeps and p.identity}
        if not posts or self.about.folder is None:
            return
        # Many times a second in a fast run, so without waiting for the disk: renamed, it is whole all the same.
        path = self.about.folder / "tracking.json"
        temporary = path.with_name(f".{path.name}.part")
        temporary.write_text(json.dumps(posts))
        os.replace(temporary, path)


def _entries(rows: Sequence[Row]) -> list[tuple[str, int, dict[str, float]]]:
    """The rows of the log as they were entered: those of one phase and step together."""
    entries: list[tuple[str, int, dict[str, float]]] = []
    for phase, step, metric, value in rows:
        if not entries or entries[-1][:2] != (phase, step):
            entries.append((phase, step, {}))
        entries[-1][2][metric] = value
    return entries


def _numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in summary.items() if isinstance(value, int | float)}
