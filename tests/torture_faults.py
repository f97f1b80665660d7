"""Every fault but SIGKILL, for torture.py: each yields rows, and raises `Failed` where it does not come out right."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from robustda.methods import create_method
from torture_bench import AT_END, Bench, Child, Ended, Failed, at_step, checkpoints

NOBODY = 65534
YEAR = 365 * 24 * 3600


class Row(NamedTuple):
    """A line of the table."""

    fault: str
    moment: str
    method: str
    outcome: str


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
