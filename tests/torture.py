"""What happens to a run when something goes wrong: every fault at every moment, and what came of it, as a table.

``make torture`` runs all of it and writes docs/torture.md; tests/test_torture.py runs a small part of it.

A process that has imported everything forks a child for each start of a run, so that a start takes a fraction of a
second. A child is the command line itself: what it prints and its exit code are what a user would get. SIGKILL comes
either from outside at a random time, or from the child itself at a chosen event: the n-th training step, or before or
after the n-th fsync, rename or removal, so that the moments in which files change hands are hit as well.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from conftest import make_folders, make_pair
from robustda import cli, engine, run
from robustda.methods import create_method, method_class, method_names

OUTCOME = ("model.safetensors", "metrics.csv", "trust.csv", "predictions.csv")
SMALL = {
    "width": 32,
    "discriminator_width": 32,
    "learning_rate": 0.05,
    "steps": 24,
    "mentor_steps": 12,
    "epochs": 3,
    "noise_rate": 0.3,
    "batch_size": 16,
    "components": 8,
}
RUNTIME = {"log_every": 3, "eval_every": 12, "checkpoint_seconds": 0, "tensorboard": "false", "device": "cpu"}
NOBODY = 65534
YEAR = 365 * 24 * 3600


class Row(NamedTuple):
    """A line of the table."""

    fault: str
    moment: str
    method: str
    outcome: str


class Failed(AssertionError):
    """A run did not come through."""


# A task, and a run of it in a process of its own.


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


# SIGKILL, many times.


def kills(bench: Bench, method: str, wanted: int, kind: str = "vectors") -> collections.Counter[tuple[str, str]]:
    """Kill runs of a method at random moments until there are so many kills, resuming each until it is done.

    Returns how often which phase was hit at which kind of moment.
    """
    bench.reference(method, kind)
    seconds, events = bench.lasted[method, kind]
    names = [build.__name__ for build in create_method(method).phases()]
    hit: collections.Counter[tuple[str, str]] = collections.Counter()
    while hit.total() < wanted:
        out = bench.out()
        moment_file = out.parent / f"{out.name}.moment"
        for attempt in range(200):
            if hit.total() < wanted and attempt < 6:
                moment_file.unlink(missing_ok=True)
                if bench.rng.random() < 0.6:
                    child = Child(bench.command(method, out, kind), at_event(int(bench.rng.integers(events))))
                    ended = child.wait()
                else:
                    child = Child(bench.command(method, out, kind))
                    time.sleep(bench.rng.uniform(0, seconds))
                    os.kill(child.pid, signal.SIGKILL)
                    ended = child.wait()
                if ended.code == -signal.SIGKILL:
                    phase = "the end" if (out / "model.safetensors").exists() else names[stands_in(out)]
                    moment = moment_file.read_text() if moment_file.exists() else "any time"
                    hit[phase, moment] += 1
                    continue
            else:
                ended = Child(bench.command(method, out, kind)).wait()
            if ended.code != 0 or ended.printed:
                raise Failed(f"{method} does not go on after a kill (code {ended.code}): {ended.printed}")
            bench.compare(method, out, kind)
            shutil.rmtree(out)
            break
    return hit


# The other faults. Each yields rows; one that does not come out as it should raises `Failed`.


def one_line(ended: Ended, code: int, *words: str) -> str:
    """The one line that a run printed as it ended."""
    lines = ended.printed.splitlines()
    if ended.code != code or len(lines) != 1 or not all(word in lines[0] for word in words):
        raise Failed(f"code {ended.code} in place of {code}, or not the line with {words}: {ended.printed!r}")
    return lines[0].removeprefix("robustda: ").removeprefix("error: ")


def asked_to_stop(bench: Bench, methods: list[str]) -> Iterator[Row]:
    """SIGTERM, SIGUSR1, SIGINT: the step in hand is finished, the state kept, the exit code is the signal's."""
    for method in methods:
        phases = create_method(method).phases()
        for number, build in enumerate(phases):
            for name in ("SIGTERM", "SIGUSR1", "SIGINT"):
                asked = getattr(signal, name)
                out, step = bench.out(), int(bench.rng.integers(1, 8))
                ask = at_step(number, step, lambda out, asked=asked: os.kill(os.getpid(), asked))  # type: ignore[misc]
                ended = Child(bench.command(method, out, checkpoint_seconds=1000), ask).wait()
                if ended.code == 0:
                    bench.compare(method, out)
                    yield Row(name, f"phase {build.__name__}", method, "has no training steps: nothing to stop")
                    continue
                one_line(ended, 128 + asked, "interrupted" if name == "SIGINT" else f"stopped by {name}")
                newest = checkpoints(out)[-1].name
                if newest != f"{number:02d}-{step + 1:08d}":
                    raise Failed(f"{method} was asked to stop at step {step} and kept {newest}")
                if bench.resume(method, out):
                    raise Failed(f"{method} complains when it goes on")
                yield Row(
                    name,
                    f"phase {build.__name__}",
                    method,
                    f"step finished and kept, exit code {128 + asked}; resumed, equal",
                )


def full_disk(bench: Bench, methods: list[str]) -> Iterator[Row]:
    """No room: in a checkpoint, in a small file, at the very start. A small tmpfs if we may make one, else a limit."""
    for method in methods:
        for kilobytes, moment in ((1, "at the start"), (40, "during training")):
            out = bench.out()
            ended, real = in_small_disk(bench.command(method, out), out, kilobytes)
            if ended.code == 0 and not real:
                continue  # no single file is that large
            reason = "No space left on device" if real else "File too large"
            line = one_line(ended, 2, f"cannot write to the run folder {out}", reason).replace(str(out), "FOLDER")
            left = sorted(p.name for p in out.rglob("*") if p.is_file() and p.name.startswith("."))
            if left or (out / "done").exists():
                raise Failed(f"{method} leaves {left or 'done'} on a full disk")
            bench.resume(method, out)
            yield Row("full disk" if real else "file size limit", moment, method, f"“{line}”; resumed, equal")


def in_small_disk(arguments: list[str], out: Path, kilobytes: int) -> tuple[Ended, bool]:
    """Run a command whose run folder is a file system of its own of that size; its content is kept afterwards."""
    out.mkdir(parents=True, exist_ok=True)
    saved = out.with_name(f"{out.name}.saved")
    real = may_mount()

    def limit(_: Path) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    if not real:
        return Child(arguments, limit).wait(), False

    def mounted(_: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x00020000) != 0:  # CLONE_NEWNS
            raise OSError(ctypes.get_errno(), "unshare")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={max(8, kilobytes)}k", "none", str(out)], check=True)
        # What is on it is lost with this process: it is copied out at its end.
        AT_END.append(lambda out: shutil.copytree(out, saved) and None)

    ended = Child(arguments, mounted).wait()
    out.rmdir()
    if saved.exists():
        saved.rename(out)
    return ended, True


def may_mount() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    probe = "mount --make-rprivate / && mount -t tmpfs -o size=8k none /mnt"
    return subprocess.run(["unshare", "-m", "sh", "-c", probe], capture_output=True, check=False).returncode == 0


def read_only(bench: Bench, methods: list[str]) -> Iterator[Row]:
    """The folder may not be written to: from the start, or from some moment on."""
    for method in methods:
        for moment, step in (("at the start", None), ("during training", 10)):
            out = bench.killed(method)
            before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
            for path in (out, *out.rglob("*")):
                if os.geteuid() == 0:
                    os.chown(path, NOBODY, NOBODY)

            def forbid(out: Path) -> None:
                for path in sorted(out.rglob("*"), reverse=True):
                    path.chmod(0o555 if path.is_dir() else 0o444)
                out.chmod(0o555)

            def lower(_: Path) -> None:  # root may write anywhere
                if os.geteuid() == 0:
                    os.setgid(NOBODY)
                    os.setuid(NOBODY)

            def start_forbidden(out: Path) -> None:
                forbid(out)
                lower(out)

            def later(out: Path, step: int | None = step) -> None:
                lower(out)
                at_step(0, int(step or 0), forbid)(out)

            bench.place.chmod(0o755)
            ended = Child(bench.command(method, out), start_forbidden if step is None else later).wait()
            for path in (out, *out.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            line = one_line(ended, 2, f"cannot write to the run folder {out}", "Permission denied")
            line = line.replace(str(out), "FOLDER")
            if step is None and before != {p: p.read_bytes() for p in before}:
                raise Failed(f"{method} changed a folder that is read-only")
            bench.resume(method, out)
            yield Row("read-only folder", moment, method, f"“{line}”; resumed, equal")


def no_memory(bench: Bench, methods: list[str]) -> Iterator[Row]:
    """The memory is full: a limit just above what the process has when training begins."""
    for method in methods:
        out = bench.killed(method)

        def limit(out: Path) -> None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            size = pages * resource.getpagesize() + (1 << 20)
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
            torch.empty(1 << 26)  # what a larger batch would ask for

        started = at_step(0, 9, limit)
        ended = Child(bench.command(method, out), started).wait()
        line = one_line(ended, 2, "the memory is full", "the same command")
        bench.resume(method, out)
        yield Row("out of memory", "during training", method, f"“{line}”; resumed, equal")


def damage(bench: Bench, methods: list[str]) -> Iterator[Row]:
    """Files of a killed run that were cut short, changed or lost."""

    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(bench.rng.integers(len(content)))] ^= 1 << int(bench.rng.integers(8))
        path.write_bytes(content)

    hurts: dict[str, Callable[[Path], None]] = {"cut short": cut, "one bit flipped": flip, "lost": Path.unlink}
    for method in methods:
        for name in ("state.safetensors", "state.json"):
            for how, hurt in hurts.items():
                out = bench.killed(method)
                newest = checkpoints(out)[-1]
                hurt(newest / name)
                line = one_line(
                    Ended(0, bench.resume(method, out)), 0, f"the checkpoint {newest} is damaged", "going back"
                )
                assert line
                yield Row(
                    f"{name} of the newest checkpoint {how}",
                    "between two starts",
                    method,
                    "the one before is used, with a warning; equal",
                )
        for how, hurt in hurts.items():
            out = bench.killed(method)
            hurt(out / "metrics.csv")
            ended = Child(bench.command(method, out)).wait()
            if ended.code == 0:  # the cut or the flip hit what lies beyond the checkpoint
                bench.compare(method, out)
                yield Row(f"metrics.csv {how}", "between two starts", method, "beyond the checkpoint: resumed, equal")
                continue
            one_line(ended, 2, f"{out / 'metrics.csv'} has lost or changed some of the", "put them back, or delete")
            yield Row(
                f"metrics.csv {how}",
                "between two starts",
                method,
                "stops: “metrics.csv has lost or changed some of the entries …”",
            )
        out = bench.killed(method)
        cut(out / "config.json")
        one_line(Child(bench.command(method, out)).wait(), 2, f"{out / 'config.json'} cannot be read")
        yield Row("config.json cut short", "between two starts", method, "stops: “config.json cannot be read …”")
        out = bench.killed(method)
        (out / "config.json").unlink()
        one_line(Child(bench.command(method, out, seed=5)).wait(), 2, "is of a run with other settings")
        (out / "config.json").unlink()
        bench.resume(method, out)
        yield Row(
            "config.json lost", "between two starts", method, "same settings: resumed, equal; other settings: refused"
        )


def two_at_once(bench: Bench, methods: list[str]) -> Iterator[Row]:
    """A second process on one run folder."""
    for method in methods:
        out = bench.out()
        first = Child(bench.command(method, out), at_step(0, 8, lambda out: os.kill(os.getpid(), signal.SIGSTOP)))
        os.waitpid(first.pid, os.WUNTRACED)
        owner = f"{out} is in use by process {first.pid} on {socket.gethostname()}"
        line = one_line(Child(bench.command(method, out)).wait(), 2, owner, "wait for it, or choose another --out")
        assert line
        os.kill(first.pid, signal.SIGCONT)
        if (ended := first.wait()).code != 0:
            raise Failed(f"{method} came to harm by a second process: {ended.printed}")
        bench.compare(method, out)
        yield Row("a second process", "during training", method, "refused, told pid and host; the first ends, equal")


def clock(bench: Bench, methods: list[str]) -> Iterator[Row]:
    """The clock of the machine jumps by a year, either way."""

    def jump(by: int) -> Callable[[Path], None]:
        def act(out: Path) -> None:
            now, now_ns = time.time, time.time_ns
            time.time = lambda: now() + by
            time.time_ns = lambda: now_ns() + by * 10**9

        return act

    for method in methods:
        for by, words in ((YEAR, "a year ahead"), (-YEAR, "a year back")):
            out = bench.out()
            ended = Child(bench.command(method, out), at_step(0, 6, jump(by))).wait()
            if ended.code != 0 or ended.printed:
                raise Failed(f"{method} minds the clock: {ended.printed}")
            bench.compare(method, out)
            out = bench.killed(method, "images")
            ended = Child(bench.command(method, out, "images"), jump(by)).wait()
            if ended.code != 0 or ended.printed:
                raise Failed(f"{method} minds the clock: {ended.printed}")
            bench.compare(method, out, "images")
            yield Row(f"clock {words}", "during training, between two starts", method, "nothing happens: equal")


def images_change(bench: Bench, methods: list[str]) -> Iterator[Row]:
    """Cache deleted under the run or after it, an image changed under the run or between two starts."""
    cache, image = bench.place / "cache", bench.place / "web" / "bee" / "3.jpg"
    other = (bench.place / "web" / "bee" / "5.jpg").read_bytes()

    def forget(out: Path) -> None:
        shutil.rmtree(cache)

    for method in methods:
        out = bench.out()
        ended = Child(bench.command(method, out, "images"), at_step(0, 6, forget)).wait()
        if ended.code != 0 or ended.printed:
            raise Failed(f"{method} minds that its cache is gone: {ended.printed}")
        bench.compare(method, out, "images")
        yield Row("image cache deleted", "during training", method, "nothing happens: equal")
        out = bench.killed(method, "images")
        shutil.rmtree(cache)
        bench.resume(method, out, "images")
        yield Row("image cache deleted", "between two starts", method, "decoded anew; resumed, equal")
        kept = image.read_bytes()
        try:
            out = bench.out()
            bench.reference(method, "images")
            ended = Child(
                bench.command(method, out, "images"), at_step(0, 6, lambda out: image.write_bytes(other) and None)
            ).wait()
            if ended.code != 0 or ended.printed:
                raise Failed(f"{method} minds an image that changed after it was read: {ended.printed}")
            bench.compare(method, out, "images")
            yield Row(
                "an image changed", "during training", method, "what was read at the start is used throughout: equal"
            )
            image.write_bytes(kept)
            out = bench.killed(method, "images")
            image.write_bytes(other)
            one_line(Child(bench.command(method, out, "images")).wait(), 2, "holds a run with other settings (digest ")
            yield Row(
                "an image changed",
                "between two starts",
                method,
                "stops: “… holds a run with other settings (digest …)”",
            )
        finally:
            image.write_bytes(kept)
        bench.resume(method, out, "images")
        yield Row("an image changed and put back", "between two starts", method, "resumed, equal")
        out = bench.killed(method, "images")
        pixels = max((cache / "images").glob("*/pixels.raw"), key=lambda path: path.stat().st_size)
        pixels.write_bytes(pixels.read_bytes()[:-1000])
        bench.resume(method, out, "images")
        yield Row("cached pixels cut short", "between two starts", method, "decoded anew; resumed, equal")


FAULTS = (asked_to_stop, full_disk, read_only, no_memory, damage, two_at_once, clock, images_change)


# The table.


def trained() -> list[str]:
    """The methods that take training steps: most faults need one to strike at."""
    return [name for name in method_names() if name not in ("prototypes", "concord")]


def report(hits: dict[str, collections.Counter[tuple[str, str]]], rows: list[Row], seconds: float) -> str:
    total = sum(hit.total() for hit in hits.values())
    lines = [
        "# What happens when something goes wrong",
        "",
        "Written by `make torture` (tests/torture.py), which stops at the first line that does not come out right.",
        "",
        f"**{total} kills** (SIGKILL) at random moments, over {len(hits)} methods; every run was resumed until done.",
        "Each ended bit for bit as the run that was never killed: weights, log, trust table, predictions; no entry",
        f"of the log is missing or there twice. {len(rows)} runs met another fault, below. {seconds:.0f} s in all.",
        "",
        "| method | phase | kills | at a step | at an entry of the log | at a sync, rename or removal | at any time |",
        "|---|---|---|---|---|---|---|",
    ]
    for method, hit in hits.items():
        for phase in dict.fromkeys(phase for phase, _ in sorted(hit)):
            moments: collections.Counter[str] = collections.Counter()
            for (where, moment), count in hit.items():
                if where == phase:
                    kind = "step" if "a step" in moment else "entry" if "entry" in moment else moment
                    moments["any" if moment == "any time" else kind if kind in ("step", "entry") else "file"] += count
            cells = " | ".join(str(moments[kind] or "") for kind in ("step", "entry", "file", "any"))
            lines.append(f"| {method} | {phase} | {moments.total()} | {cells} |")
    lines += [
        "",
        "*The end* is when the outcome is written. A kill before the first checkpoint counts for the first phase.",
    ]
    lines += ["", "| fault | moment | methods | outcome |", "|---|---|---|---|"]
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        grouped.setdefault((row.fault, row.moment, row.outcome), []).append(row.method)
    for (fault, moment, what), methods in grouped.items():
        lines.append(f"| {fault} | {moment} | {', '.join(methods)} | {what} |")
    return "\n".join([*lines, ""])


def main() -> int:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="SIGKILLs over all methods")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a fault's function, such as full_disk, or kills")
    parser.add_argument("--methods", nargs="*", default=method_names())
    parser.add_argument("--fault_methods", nargs="*", default=trained(), help="for the faults other than kills")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "torture.md")
    chosen = parser.parse_args()
    began = time.monotonic()
    hits: dict[str, collections.Counter[tuple[str, str]]] = {}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        bench = Bench.make(Path(place), chosen.seed)
        share = -(-chosen.kills // len(chosen.methods))
        if chosen.only in ("", "kills"):
            for method in chosen.methods:
                hits[method] = kills(bench, method, share)
                print(f"{method}: {share} kills, resumed, equal ({time.monotonic() - began:.0f} s)", flush=True)
        for fault in FAULTS:
            if chosen.only in ("", fault.__name__):
                able = set(trained()) & set(chosen.methods)
                for row in fault(bench, [name for name in chosen.fault_methods if name in able]):
                    print(" · ".join(row), flush=True)
                    rows.append(row)
    text = report(hits, rows, time.monotonic() - began)
    print(text)
    if not chosen.only:
        chosen.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
