"""Runs in processes of their own, for torture.py: a task, children that are forked, and events inside them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from conftest import make_folders, make_pair
from robustda import cli, engine, run
from robustda.methods import method_class, method_names

OUTCOME = ("model.safetensors", "metrics.csv", "trust.csv", "predictions.csv")
SMALL = {
    "width": 32,
    "discriminator_width": 32,
    "learning_rate": 0.05,
    "steps": 24,
    "mentor_steps": 12,
    "head_steps": 12,
    "epochs": 3,
    "noise_rate": 0.3,
    "batch_size": 16,
    "components": 8,
}
RUNTIME = {"log_every": 3, "eval_every": 12, "checkpoint_seconds": 0, "tensorboard": "false", "device": "cpu"}


class Failed(AssertionError):
    """A run did not come through."""


@dataclasses.dataclass
class Bench:
    """A folder to work in, the data in it, and the outcome of every method that nothing happened to."""

    place: Path
    rng: np.random.Generator
    whole: dict[tuple[str, str], dict[str, bytes]] = dataclasses.field(default_factory=dict)
    lasted: dict[tuple[str, str], tuple[float, int]] = dataclasses.field(default_factory=dict)
    runs: int = 0

    @classmethod
    def make(cls, place: Path, seed: int) -> Bench:
        pair = make_pair(seed=3, size=96, target_size=64, shift=1.0, rate=0.2)
        pair.source.save_npz(place / "source.npz")
        pair.target.save_npz(place / "target.npz")
        make_folders(place)
        os.environ["ROBUSTDA_CACHE"] = str(place / "cache")
        torch.set_num_threads(1)
        bench = cls(place, np.random.default_rng(seed))
        for kind in ("vectors", "images"):  # what is imported late is imported once, and not by every child
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                cli.main(bench.command("rda", bench.out(), kind, noise_rate="auto"))
        return bench

    def out(self) -> Path:
        """A new run folder."""
        self.runs += 1
        return self.place / f"run-{self.runs}"

    def command(self, method: str, out: Path, kind: str = "vectors", **changed: Any) -> list[str]:
        known = {field.name for field in dataclasses.fields(method_class(method))}
        options = {name: value for name, value in SMALL.items() if name in known} | RUNTIME | changed
        if kind == "vectors":
            options |= {"source": self.place / "source.npz", "target": self.place / "target.npz"}
        else:
            options |= {"source": self.place / "web", "target": self.place / "camera", "backbone": "small_cnn"}
            options |= {"epochs": 6} if "epochs" in known else {}
        words = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        return ["fit", "--method", method, "--out", str(out), *words]

    def reference(self, method: str, kind: str = "vectors") -> dict[str, bytes]:
        """The outcome of a run that nothing happened to."""
        if (method, kind) not in self.whole:
            out, before = self.out(), time.monotonic()
            ended = Child(self.command(method, out, kind), counting).wait()
            if ended.code != 0:
                raise Failed(f"{method} does not even run by itself: {ended.printed}")
            self.lasted[method, kind] = time.monotonic() - before, int((out.parent / f"{out.name}.events").read_text())
            self.whole[method, kind] = outcome(out)
            shutil.rmtree(out)
        return self.whole[method, kind]

    def resume(self, method: str, out: Path, kind: str = "vectors", **changed: Any) -> str:
        """Start the run again, compare what comes of it, and return what it printed."""
        ended = Child(self.command(method, out, kind, **changed)).wait()
        if ended.code != 0:
            raise Failed(f"{method} does not go on (code {ended.code}): {ended.printed}")
        self.compare(method, out, kind)
        return ended.printed

    def compare(self, method: str, out: Path, kind: str = "vectors") -> None:
        """The run has ended as if nothing had happened: the same bytes, no entry twice, nothing left over."""
        found, wanted = outcome(out), self.reference(method, kind)
        if changed := [name for name in wanted if found.get(name) != wanted[name]]:
            raise Failed(f"{method} ended differently: {', '.join(changed)}")
        entries = [line.rsplit(",", 1)[0] for line in found["metrics.csv"].decode().splitlines()]
        if len(set(entries)) < len(entries):
            raise Failed(f"{method} has entries twice")
        if (out / "checkpoints").exists():
            raise Failed(f"{method} is done and has checkpoints left")

    def killed(self, method: str, kind: str = "vectors", phase: int = 0) -> Path:
        """The folder of a run that was killed in the middle of a phase, with two checkpoints."""
        for _ in range(50):
            out = self.out()
            Child(self.command(method, out, kind), at_step(phase, 8, die)).wait()
            if len(checkpoints(out)) >= 2:
                return out
        raise Failed(f"no run of {method} could be stopped in phase {phase}")


class Ended(NamedTuple):
    """How a child ended: its exit code, minus the signal's number if one killed it, and what it printed to stderr."""

    code: int
    printed: str


class Child:
    """A command in a process of its own, with a fault prepared in it by `prepare`."""

    def __init__(self, arguments: list[str], prepare: Callable[[Path], None] | None = None) -> None:
        out = Path(arguments[arguments.index("--out") + 1])
        self.errors = out.parent / f"{out.name}.stderr"
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                for number, target in ((1, os.devnull), (2, self.errors)):
                    os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                if prepare is not None:
                    prepare(out)
                code = cli.main(arguments)
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                for stream in (sys.stdout, sys.stderr):
                    with contextlib.suppress(OSError, ValueError):
                        stream.flush()
                for action in AT_END:
                    action(out)
                os._exit(code)

    def wait(self, limit: float = 120.0) -> Ended:
        until = time.monotonic() + limit
        while time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return Ended(code, self.errors.read_text() if self.errors.exists() else "")
            time.sleep(0.002)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise Failed(f"a run hangs: {self.errors.read_text()}")


def outcome(out: Path) -> dict[str, bytes]:
    if not (out / "done").exists():
        raise Failed(f"{out} is not done")
    return {name: (out / name).read_bytes() for name in OUTCOME if (out / name).exists()}


def checkpoints(out: Path) -> list[Path]:
    return sorted((out / "checkpoints").glob("[0-9]*"))


def stands_in(out: Path) -> int:
    """The number of the phase that the newest checkpoint is of."""
    found = checkpoints(out)
    return int(found[-1].name.split("-")[0]) if found else 0


# Events inside a child: training steps, and calls that change files.

AT_END: list[Callable[[Path], None]] = []


def watch(act: Callable[[int, str], None]) -> None:
    """Call `act` with the number and name of each event, for the rest of this process."""
    count = iter(range(10**9))

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **more: Any) -> Any:
            act(next(count), f"before {name}")
            result = call(*args, **more)
            act(next(count), f"after {name}")
            return result

        return called

    os.fsync = around("fsync", os.fsync)
    os.replace = around("rename", os.replace)
    shutil.rmtree = around("removal", shutil.rmtree)  # type: ignore[assignment]
    engine.Stepper.__call__ = around("a step", engine.Stepper.__call__)  # type: ignore[method-assign]
    run.Metrics.add = around("an entry", run.Metrics.add)  # type: ignore[method-assign]


def counting(out: Path) -> None:
    """Note how many events a whole run has."""
    seen = [0]

    def act(number: int, name: str) -> None:
        seen[0] = number + 1

    watch(act)
    AT_END.append(lambda out: (out.parent / f"{out.name}.events").write_text(str(seen[0])) and None)


def at_event(number: int) -> Callable[[Path], None]:
    """Die at an event, having written down at which."""

    def prepare(out: Path) -> None:
        def act(now: int, name: str) -> None:
            if now == number:
                (out.parent / f"{out.name}.moment").write_text(name)
                die(out)

        watch(act)

    return prepare


def at_step(phase: int, step: int, act: Callable[[Path], None]) -> Callable[[Path], None]:
    """Do something before a training step of a phase."""

    def prepare(out: Path) -> None:
        plain = engine.Stepper.__call__
        names: list[str] = []

        def called(stepper: engine.Stepper, now: int) -> None:
            if stepper.phase.name not in names:
                names.append(stepper.phase.name)
            first = stands_in(out) - (len(names) - 1) if len(names) == 1 else 0
            if (len(names) - 1 + first, now) == (phase, step):
                act(out)
            plain(stepper, now)

        engine.Stepper.__call__ = called  # type: ignore[method-assign]

    return prepare


def die(out: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def trained() -> list[str]:
    """The methods that take training steps: most faults need one to strike at."""
    return [name for name in method_names() if name not in ("prototypes", "concord")]
