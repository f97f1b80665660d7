"""A run that was killed goes on by the same command, and ends bit for bit as the run that was never killed."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from conftest import command, environment, make_pair
from robustda.cli import main
from robustda.errors import RobustDAWarning
from robustda.files import load_tensors, save_tensors, seal

OUTCOME = ("model.safetensors", "metrics.csv", "trust.csv", "predictions.csv")
FILTER, ADAPT = "filter", "adapt"
STEPS = 200


def fit(data: Path, out: Path, **changed: object) -> list[str]:
    """The command that every test here gives: a small task with many checkpoints, 200 steps a phase."""
    options = {
        "source": data / "source.npz",
        "target": data / "target.npz",
        "out": out,
        "method": "rda",
        "epochs": 20,  # of 10 steps each
        "steps": STEPS,
        "batch_size": 16,
        "width": 8,
        "log_every": 5,
        "eval_every": 100,
        "checkpoint_seconds": 0,
        "tensorboard": "false",
        "device": "cpu",
        **changed,
    }
    if options["method"] == "mdd":
        del options["epochs"]
    return ["fit", *(text for name, value in options.items() for text in (f"--{name}", str(value)))]


def outcome(run: Path) -> dict[str, bytes]:
    assert (run / "done").exists()
    return {name: (run / name).read_bytes() for name in OUTCOME if (run / name).exists()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    pair = make_pair(seed=3, size=160, target_size=120)
    pair.source.save_npz(folder / "source.npz")
    pair.target.save_npz(folder / "target.npz")
    return folder


@pytest.fixture(scope="module")
def never_killed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("runs") / "never-killed"
    subprocess.run(command(*fit(data, out)), env=environment(), check=True, capture_output=True)
    return outcome(out)


@pytest.fixture(scope="module")
def interrupted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed while it adapted; for tests that do something to it, in a copy."""
    out = tmp_path_factory.mktemp("runs") / "interrupted"
    kill(fit(data, out), out, ADAPT, np.random.default_rng(0), at_least=50)
    return out


@pytest.fixture
def stopped(interrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


class Killed(NamedTuple):
    """Where a run stood when it was killed, and the newest checkpoint that it leaves."""

    phase: str
    step: int
    phase_number: int
    checkpoint: int


def kill(arguments: list[str], out: Path, phase: str, rng: np.random.Generator, at_least: int = 10) -> Killed:
    """Start the command and kill it at a random moment of the phase.

    On a busy machine the phase may be over before we get to act: then it is tried again.
    """
    for _ in range(5):
        shutil.rmtree(out, ignore_errors=True)
        moment, pause = int(rng.integers(at_least, STEPS * 3 // 4)), rng.uniform(0, 0.01)
        with subprocess.Popen(command(*arguments), env=environment(), stderr=subprocess.PIPE) as process:
            while process.poll() is None:
                now, step = logged(out)
                if now == phase and step >= moment:
                    break
                time.sleep(0.0005)
            time.sleep(pause)
            process.kill()
            trouble = process.communicate()[1].decode()
        assert not trouble
        now, step = logged(out)
        newest = checkpoints(out)[-1:]
        if process.returncode == -signal.SIGKILL and now == phase and newest:
            number, checkpoint = map(int, newest[0].name.split("-"))
            return Killed(now, step, number, checkpoint)
    raise AssertionError(f"in five attempts no kill hit the phase {phase}")


def logged(run: Path) -> tuple[str, int]:
    """Phase and step of the last whole line in the metrics."""
    if not (run / "metrics.csv").exists():
        return "", 0
    lines = (run / "metrics.csv").read_text().split("\n")[1:-1]
    phase, step = lines[-1].split(",")[:2] if lines else ("", 0)
    return phase, int(step)


def checkpoints(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("[0-9]*"))


# Killed and resumed.


@pytest.mark.parametrize("attempt", range(3))
@pytest.mark.parametrize(("phase", "number"), [(FILTER, 0), (ADAPT, 1)])
def test_a_killed_run_ends_as_one_that_was_never_killed(data, tmp_path, never_killed, phase, number, attempt):
    out = tmp_path / "run"
    killed = kill(fit(data, out), out, phase, np.random.default_rng([number, attempt]))
    assert not (out / "done").exists()
    assert not (out / "model.safetensors").exists()
    assert (killed.phase, killed.phase_number) == (phase, number)
    assert 0 < killed.checkpoint <= killed.step < STEPS
    resumed = subprocess.run(command(*fit(data, out)), env=environment(), capture_output=True, text=True, check=False)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert outcome(out) == never_killed
    assert len(never_killed) == 4


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_run_that_is_asked_to_stop_keeps_its_very_last_step(data, tmp_path, never_killed, name):
    """Between two entries of the metrics and long before a checkpoint is due: nothing is lost all the same."""
    out = tmp_path / "run"
    asked = getattr(signal, name)
    rarely = [*fit(data, out), "--log_every", "50", "--checkpoint_seconds", "1000"]
    whole = tmp_path / "whole"
    subprocess.run(
        command(*[str(whole) if word == str(out) else word for word in rarely]), env=environment(), check=True
    )
    with subprocess.Popen(command(*rarely), env=environment(), stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and logged(out)[0] != ADAPT:
            time.sleep(0.0005)
        process.send_signal(asked)
        printed = process.communicate()[1]
    assert (process.returncode, printed) == (
        128 + asked,
        f"robustda: stopped by {name}; the same command takes it up again\n",
    )
    number, step = map(int, checkpoints(out)[-1].name.split("-"))
    assert number == 1
    assert 50 <= step < STEPS
    subprocess.run(command(*rarely), env=environment(), check=True)
    assert outcome(out) == outcome(whole)


def test_mdd_resumes_too(data, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert main(fit(data, whole, method="mdd", steps=400)) == 0
    killed = kill(fit(data, out, method="mdd", steps=400), out, ADAPT, np.random.default_rng(5))
    assert (killed.phase_number, killed.checkpoint % 5) == (0, 0)
    subprocess.run(
        command(*fit(data, out, method="mdd", steps=400)), env=environment(), check=True, capture_output=True
    )
    assert outcome(out) == outcome(whole)
    assert set(outcome(out)) == {"model.safetensors", "metrics.csv", "predictions.csv"}


def test_the_checkpoint_is_what_a_run_goes_on_from(data, stopped, never_killed):
    newest = checkpoints(stopped)[-1]
    tensors = load_tensors(newest / "state.safetensors")
    tensors["network/f.3.bias"] += 1
    note = json.loads((newest / "state.json").read_text())
    note["digest"] = save_tensors(newest / "state.safetensors", tensors)
    note["bytes"] = (newest / "state.safetensors").stat().st_size
    (newest / "state.json").write_text(json.dumps(seal(note)))
    assert main(fit(data, stopped)) == 0
    ended = outcome(stopped)
    assert ended["trust.csv"] == never_killed["trust.csv"]
    assert ended["model.safetensors"] != never_killed["model.safetensors"]
    before = note["metrics_rows"] + 1
    ours, theirs = (found["metrics.csv"].splitlines() for found in (ended, never_killed))
    assert ours[:before] == theirs[:before]
    assert ours[before:] != theirs[before:]


def test_the_time_before_the_kill_is_counted(data, stopped):
    note_file = checkpoints(stopped)[-1] / "state.json"
    note_file.write_text(json.dumps(seal(json.loads(note_file.read_text()) | {"seconds": 1000.0})))
    assert main(fit(data, stopped)) == 0
    assert json.loads((stopped / "summary.json").read_text())["seconds"] > 1000


# Damage and litter.


def warnings_shown(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> list[str]:
    """Run a command that must end well; returns what it printed to stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RobustDAWarning)
        assert main(arguments) == 0
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
def test_a_damaged_checkpoint_costs_time_only(data, stopped, never_killed, capsys, name):
    *older, newest = checkpoints(stopped)  # three where the kill came before the oldest was dropped
    content = (newest / name).read_bytes()
    (newest / name).write_bytes(content[: len(content) // 2])
    (warning,) = warnings_shown(capsys, fit(data, stopped))
    assert warning.startswith(f"robustda: warning: the checkpoint {newest} is damaged")
    assert older
    assert outcome(stopped) == never_killed


def test_without_a_sound_checkpoint_a_run_starts_anew(data, stopped, never_killed, capsys):
    found = checkpoints(stopped)
    for checkpoint in found:
        (checkpoint / "state.safetensors").write_bytes(b"")
    assert len(warnings_shown(capsys, fit(data, stopped))) == len(found) >= 2
    assert outcome(stopped) == never_killed


def test_what_a_crash_left_half_written_is_ignored(data, stopped, never_killed, capsys):
    stray = stopped / "checkpoints" / ".01-00000199.0123456789abcdef0123456789abcdef"
    stray.mkdir()
    (stray / "state.safetensors").write_bytes(b"half a state")
    for name in ("metrics.csv", "model.safetensors", "config.json"):
        (stopped / f".{name}.0123456789abcdef0123456789abcdef").write_bytes(b"half a file")
    with open(stopped / "metrics.csv", "a") as metrics:
        metrics.write("adapt,19")  # a line cut off in the middle
    assert warnings_shown(capsys, fit(data, stopped)) == []
    assert outcome(stopped) == never_killed


def test_a_kill_while_the_outcome_is_written_is_resumed_too(data, stopped, never_killed):
    # Some files of the end are there, but not the last one, which is done.
    (stopped / "model.safetensors").write_bytes(b"of a run that was killed right after")
    (stopped / "trust.csv").write_bytes(b"the same")
    (stopped / "summary.json").write_bytes(b"{}")
    assert main(fit(data, stopped)) == 0
    assert outcome(stopped) == never_killed


# Done, changed, taken.


def test_a_done_run_is_not_run_again(data, stopped, capsys):
    assert main(fit(data, stopped)) == 0
    first = capsys.readouterr().out
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in stopped.iterdir() if path.name != "lock"}
    assert main(fit(data, stopped)) == 0
    assert capsys.readouterr().out == first
    assert before == {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in stopped.iterdir() if path.name != "lock"
    }


def refused(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """The one line that a refused command prints."""
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("end", [False, True], ids=["stopped", "done"])
def test_other_settings_are_refused_and_named(data, stopped, never_killed, capsys, end):
    if end:
        (stopped / "done").touch()
    line = refused(capsys, fit(data, stopped, steps=500, seed=1))
    assert f"{stopped} holds a run with other settings (steps 200 → 500; seed 0 → 1)" in line
    assert "choose another --out, or delete the folder to start anew" in line
    assert "noise_rate 'auto' → 0.3" in refused(capsys, fit(data, stopped, noise_rate=0.3))
    assert "method 'rda' → 'mdd'" in refused(capsys, fit(data, stopped, method="mdd"))
    if not end:  # and the run has come to no harm
        assert main(fit(data, stopped)) == 0
        assert outcome(stopped) == never_killed


def test_how_a_run_is_carried_out_may_change(data, stopped):
    assert main(fit(data, stopped, checkpoint_seconds=60, threads=1, progress="false")) == 0
    assert (stopped / "done").exists()


def test_other_data_are_refused_and_named(data, stopped, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(data, other)
    assert f"source '{data / 'source.npz'}' → '{other / 'source.npz'}'" in refused(capsys, fit(other, stopped))


@pytest.mark.parametrize("change", ["one value of the source", "one label of the source", "fewer target examples"])
def test_data_changed_in_place_are_refused(data, stopped, capsys, change):
    name = "target.npz" if "target" in change else "source.npz"
    kept = (data / name).read_bytes()
    arrays = dict(np.load(data / name))
    if change == "one value of the source":
        arrays["x"][0, 0] += 1
    elif change == "one label of the source":
        arrays["y"][0] = (arrays["y"][0] + 1) % 4
    else:
        arrays = {key: values[:-1] if key != "classes" else values for key, values in arrays.items()}
    try:
        np.savez(data / name, **arrays)
        line = refused(capsys, fit(data, stopped))
    finally:
        (data / name).write_bytes(kept)
    assert "digest" in line
    assert ("target_examples 120 → 119" in line) == ("target" in change)


def test_a_second_process_is_refused_and_told_who_has_the_folder(data, tmp_path, capsys):
    out = tmp_path / "run"
    long = fit(data, out, steps=1_000_000)
    with subprocess.Popen(command(*long), env=environment(), stderr=subprocess.DEVNULL) as first:
        try:
            while not logged(out)[1]:
                time.sleep(0.01)
                assert first.poll() is None
            line = refused(capsys, long)
        finally:
            first.kill()
    assert f"{out} is in use by process {first.pid} on {socket.gethostname()}" in line
    assert "wait for it, or choose another --out" in line
