"""The run folder: whole files or none, checkpoints that are checked, one process at a time."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robustda.errors import RobustDAWarning, RunError
from robustda.files import load_tensors, save_tensors, write_whole
from robustda.run import Metrics, RunFolder, environment

CONFIG = {"method": "rda", "params": {"steps": 100, "width": 8}, "data": {"digest": "abc"}}
TENSORS = {"weight": torch.arange(6.0).view(2, 3), "count": torch.tensor(3), "mean": torch.rand(4, dtype=torch.float64)}


def note(step: int, phase: int = 0) -> dict[str, int]:
    return {"phase_number": phase, "step": step, "metrics_rows": step}


def checkpoints(path: Path) -> list[str]:
    return sorted(entry.name for entry in (path / "checkpoints").iterdir())


@pytest.fixture
def folder(tmp_path):
    opened = RunFolder(tmp_path / "run", CONFIG)
    yield opened
    opened.close()


# The folder and its settings.


def test_a_new_folder_holds_the_settings_and_the_environment(folder):
    assert json.loads((folder.path / "config.json").read_text()) == CONFIG
    about = json.loads((folder.path / "environment.json").read_text())
    assert {"robustda", "python", "torch", "numpy", "platform", "device", "threads", "command"} <= set(about)
    assert about == environment()
    assert not folder.done


def test_parents_are_made(tmp_path):
    RunFolder(tmp_path / "a" / "b" / "c", CONFIG).close()
    assert (tmp_path / "a" / "b" / "c" / "config.json").is_file()


def test_the_same_settings_open_it_again(folder):
    folder.save_checkpoint(dict(TENSORS), note(5))
    folder.close()
    again = RunFolder(folder.path, CONFIG)
    assert again.load_checkpoint() is not None
    again.close()


@pytest.mark.parametrize("state", ["checkpoint", "done"])
def test_other_settings_are_refused_and_named(folder, state):
    folder.save_checkpoint(dict(TENSORS), note(5)) if state == "checkpoint" else folder.finish()
    folder.close()
    changed = {**CONFIG, "params": {"steps": 200, "width": 8, "seed": 1}}
    with pytest.raises(RunError, match=r"other settings \(steps 100 → 200; seed None → 1\): choose another --out") as e:
        RunFolder(folder.path, changed)
    assert "\n" not in str(e.value)
    many = {**CONFIG, "params": {f"p{number}": 1 for number in range(9)}}
    with pytest.raises(RunError, match=r"and 8 more\)"):
        RunFolder(folder.path, many)
    assert json.loads((folder.path / "config.json").read_text()) == CONFIG


def test_a_refused_opening_gives_the_lock_back(folder):
    folder.finish()
    folder.close()
    with pytest.raises(RunError, match="other settings") as kept:  # the traceback in `kept` lives on
        RunFolder(folder.path, {**CONFIG, "method": "mdd"})
    RunFolder(folder.path, CONFIG).close()
    assert kept.value is not None


def test_a_run_that_has_done_nothing_yet_may_be_tried_with_other_settings(folder):
    folder.close()
    changed = {**CONFIG, "method": "mdd"}
    RunFolder(folder.path, changed).close()
    assert json.loads((folder.path / "config.json").read_text()) == changed


def test_unreadable_settings_are_an_error_that_says_what_to_do(folder):
    folder.finish()
    folder.close()
    (folder.path / "config.json").write_text("{")
    with pytest.raises(RunError, match=r"config.json cannot be read .*: choose another --out"):
        RunFolder(folder.path, CONFIG)


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match=r"cannot write to the run folder .*: choose another --out"):
            RunFolder(place, CONFIG)


@pytest.mark.parametrize(("name", "kind"), [("study.db", "a study"), ("candidates/concord", "a run of --method auto")])
def test_a_folder_of_another_kind_is_left_alone(tmp_path, name, kind):
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(RunError, match=f"holds {kind}: choose another --out"):
        RunFolder(tmp_path, CONFIG)
    assert not (tmp_path / "config.json").exists()
    assert not (tmp_path / "lock").exists()


def test_finish_marks_the_run_and_drops_the_checkpoints(folder):
    folder.save_checkpoint(dict(TENSORS), note(5))
    folder.finish()
    assert folder.done
    assert not (folder.path / "checkpoints").exists()
    folder.finish()


# The lock.


def test_a_second_opening_is_refused_and_told_by_whom(folder):
    with pytest.raises(RunError, match=r"is in use by process \d+ on .*: wait for it, or choose another --out") as e:
        RunFolder(folder.path, CONFIG)
    assert f"process {os.getpid()} on {socket.gethostname()}:" in str(e.value)
    assert "\n" not in str(e.value)


def test_the_lock_ends_with_its_process_however_it_dies(tmp_path):
    code = f"""
import time
from robustda.run import RunFolder
held = RunFolder({str(tmp_path)!r}, {CONFIG!r})
print("held", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"in use by process {holder.pid} on"):
            RunFolder(tmp_path, CONFIG)
        holder.kill()
    RunFolder(tmp_path, CONFIG).close()


@pytest.mark.parametrize(
    ("owner", "refused"),
    [
        ("", False),
        ("process 999999999 on {host}", False),
        ("process {parent} on {host}", True),
        ("process 1 on another-host", True),
        ("process {own} on {host}", False),
        ("what is this", False),
    ],
)
def test_where_a_disk_knows_no_locks_the_owner_that_is_named_decides(tmp_path, monkeypatch, owner, refused):
    def no_locks(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    named = owner.format(host=socket.gethostname(), parent=os.getppid(), own=os.getpid())
    (tmp_path / "lock").write_text(f"{named}\n")
    if not refused:
        opened = RunFolder(tmp_path, CONFIG)
        assert (tmp_path / "lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"
        opened.close()
        assert (tmp_path / "lock").read_text() == ""
        return
    with pytest.raises(RunError, match=rf"in use by {named}: wait for it, .* \(if that is over, delete .*lock\)"):
        RunFolder(tmp_path, CONFIG)


def test_a_lock_of_a_process_that_was_killed_on_another_host_is_taken_over(tmp_path):
    """The system has freed it; the name that is left in it means nothing."""
    (tmp_path / "lock").write_text("process 4711 on another-host\n")
    RunFolder(tmp_path, CONFIG).close()


# Whole files.


def test_write_whole_replaces_the_content(tmp_path):
    write_whole(tmp_path / "file", b"one")
    write_whole(tmp_path / "file", b"two")
    assert (tmp_path / "file").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["file"]


def test_an_exception_in_the_middle_leaves_the_file_as_it_was(folder):
    def rows():
        yield ("a", 1)
        raise KeyboardInterrupt

    folder.write_csv("table.csv", ("name", "value"), [("old", 0)])
    before = sorted(os.listdir(folder.path))
    with pytest.raises(KeyboardInterrupt):
        folder.write_csv("table.csv", ("name", "value"), rows())
    with pytest.raises(KeyboardInterrupt):
        folder.write_csv("new.csv", ("name", "value"), rows())
    with pytest.raises(TypeError):
        folder.write_json("table.json", {"a": object()})
    assert (folder.path / "table.csv").read_text() == "name,value\nold,0\n"
    assert sorted(os.listdir(folder.path)) == before


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path):
    code = f"""
import pathlib, resource, signal
from robustda.files import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_whole(pathlib.Path({str(tmp_path / "file")!r}), b"old")
try:
    write_whole(pathlib.Path({str(tmp_path / "file")!r}), b"x" * 10_000)
except OSError as error:
    print("failed")
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "failed\n"
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_kill_at_any_moment_leaves_a_whole_file(tmp_path):
    # The writer replaces a file of 2 MB without end, each time filled with another letter.
    code = f"""
import pathlib
from robustda.files import write_whole
for turn in range(10_000):
    write_whole(pathlib.Path({str(tmp_path / "file")!r}), bytes([97 + turn % 26]) * 2_000_000)
"""
    for pause in (0.0, 0.013, 0.031):
        with subprocess.Popen([sys.executable, "-c", code]) as writer:
            while not (tmp_path / "file").exists():
                time.sleep(0.001)
                assert writer.poll() is None
            time.sleep(pause)
            writer.kill()
        assert writer.returncode == -signal.SIGKILL
        content = (tmp_path / "file").read_bytes()
        assert content == content[:1] * 2_000_000
        (tmp_path / "file").unlink()


def test_json_and_csv_keep_every_character(folder):
    folder.write_json("a.json", {"name": "ψ → f′"})
    assert json.loads((folder.path / "a.json").read_text(encoding="utf-8")) == {"name": "ψ → f′"}
    rows = [("a,b", 'say "x"'), ("new\nline", "ψ")]
    folder.write_csv("a.csv", ("one", "two"), rows)
    with open(folder.path / "a.csv", newline="", encoding="utf-8") as file:
        assert [tuple(row) for row in csv.reader(file)] == [("one", "two"), *rows]


# Checkpoints.


def test_a_checkpoint_comes_back_as_it_was(folder):
    assert folder.load_checkpoint() is None
    folder.save_checkpoint(dict(TENSORS), note(5, phase=1))
    tensors, about = folder.load_checkpoint()
    assert {name: about[name] for name in note(5)} == note(5, phase=1)
    assert set(tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_a_checkpoint_may_be_without_tensors(folder):
    folder.save_checkpoint({}, note(0, phase=1))
    assert folder.load_checkpoint()[0] == {}


def test_the_last_two_checkpoints_are_kept(folder):
    for phase, step in ((0, 5), (0, 10), (0, 100), (1, 0), (1, 5), (1, 20)):
        folder.save_checkpoint(dict(TENSORS), note(step, phase))
        assert folder.load_checkpoint()[1]["step"] == step
    assert checkpoints(folder.path) == ["01-00000005", "01-00000020"]


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize("damage", [flip_a_byte, cut_short, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(folder, damage, name):
    folder.save_checkpoint(dict(TENSORS), note(5))
    folder.save_checkpoint(dict(TENSORS), note(10))
    damage(folder.path / "checkpoints" / "00-00000010" / name)
    with pytest.warns(RobustDAWarning, match=r"checkpoint .*00-00000010 is damaged \(.*\): going back"):
        tensors, about = folder.load_checkpoint()
    assert about["step"] == 5
    assert torch.equal(tensors["weight"], TENSORS["weight"])


@pytest.mark.parametrize("change", [{"step": 7}, {"phase_number": 5}, {"metrics_rows": 0}, {"bytes": 3}, {"new": 1}])
def test_a_note_that_was_changed_is_not_trusted(folder, change):
    folder.save_checkpoint(dict(TENSORS), note(5))
    folder.save_checkpoint(dict(TENSORS), note(10))
    path = folder.path / "checkpoints" / "00-00000010" / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.warns(RobustDAWarning, match="its note is not what was written"):
        assert folder.load_checkpoint()[1]["step"] == 5


def test_checkpoints_of_other_settings_are_not_trusted_when_the_settings_are_lost(folder):
    folder.save_checkpoint(dict(TENSORS), note(5))
    (folder.path / "config.json").unlink()
    folder.close()
    again = RunFolder(folder.path, {**CONFIG, "method": "mdd"})
    with pytest.raises(RunError, match="is of a run with other settings"):
        again.load_checkpoint()
    again.close()


def test_a_folder_that_is_done_has_no_checkpoints_left(folder):
    folder.save_checkpoint(dict(TENSORS), note(5))
    (folder.path / "done").touch()  # killed before it could remove them
    folder.close()
    RunFolder(folder.path, CONFIG).close()
    assert not (folder.path / "checkpoints").exists()


def test_with_every_checkpoint_damaged_a_run_starts_anew_and_keeps_its_new_ones(folder):
    for step in (50, 60):
        folder.save_checkpoint(dict(TENSORS), note(step))
        flip_a_byte(folder.path / "checkpoints" / f"00-000000{step}" / "state.safetensors")
    with pytest.warns(RobustDAWarning, match="damaged"):
        assert folder.load_checkpoint() is None
    folder.save_checkpoint(dict(TENSORS), note(5))  # must not be pruned for the sake of the damaged ones
    assert folder.load_checkpoint()[1]["step"] == 5


def test_what_a_crash_left_half_written_is_ignored_and_cleared_away(folder):
    folder.save_checkpoint(dict(TENSORS), note(5))
    stray = folder.path / "checkpoints" / ".00-00000010.0123456789abcdef"
    stray.mkdir()
    (stray / "state.safetensors").write_bytes(b"half")
    (folder.path / ".metrics.csv.0123456789abcdef").write_bytes(b"phase,st")
    assert folder.load_checkpoint()[1]["step"] == 5
    assert checkpoints(folder.path) == ["00-00000005"]


def test_a_checkpoint_may_be_written_over(folder):
    folder.save_checkpoint({"a": torch.zeros(2)}, note(5))
    folder.save_checkpoint({"a": torch.ones(2)}, note(5))
    assert torch.equal(folder.load_checkpoint()[0]["a"], torch.ones(2))


def test_tensors_are_checked_against_their_digest(tmp_path):
    path = tmp_path / "t.safetensors"
    digest = save_tensors(path, dict(TENSORS))
    assert torch.equal(load_tensors(path, digest)["mean"], TENSORS["mean"])
    flip_a_byte(path)
    assert load_tensors(path)  # without a digest nobody can tell
    with pytest.raises(ValueError, match="not what was written"):
        load_tensors(path, digest)
    path.write_bytes(b"hello")
    with pytest.raises(ValueError, match="header"):
        load_tensors(path)


def test_transposed_and_shared_tensors_are_saved_whole(tmp_path):
    base = torch.arange(12.0).view(3, 4)
    tensors = {"turned": base.T, "part": base[:, 1], "same": base}
    digest = save_tensors(tmp_path / "t.safetensors", tensors)
    for name, tensor in load_tensors(tmp_path / "t.safetensors", digest).items():
        assert torch.equal(tensor, tensors[name])


# The metrics.


def test_metrics_are_rows_of_phase_step_metric_value(tmp_path):
    metrics = Metrics(tmp_path / "metrics.csv")
    metrics.add("filter", 5, {"loss": 1.5})
    metrics.add("adapt", 10, {"loss": 0.1, "risk": 1e-20})
    metrics.sync()
    assert (tmp_path / "metrics.csv").read_text().splitlines() == [
        "phase,step,metric,value",
        "filter,5,loss,1.5",
        "adapt,10,loss,0.1",
        "adapt,10,risk,1e-20",
    ]
    assert metrics.rows == [("filter", 5, "loss", 1.5), ("adapt", 10, "loss", 0.1), ("adapt", 10, "risk", 1e-20)]


def test_metrics_without_a_folder_stay_in_memory():
    metrics = Metrics(None)
    metrics.add("adapt", 1, {"loss": 2.0})
    metrics.sync()
    assert metrics.rows == [("adapt", 1, "loss", 2.0)]


@pytest.mark.parametrize("tail", ["", "adapt,15,loss,0.3\nadapt,20,lo", "adapt,15,loss,0.3\nada\0\0"])
def test_what_was_written_beyond_the_checkpoint_is_dropped(tmp_path, tail):
    path = tmp_path / "metrics.csv"
    head = "phase,step,metric,value\nadapt,5,loss,0.5\nadapt,10,loss,0.4\n"
    path.write_text(head + tail)
    metrics = Metrics(path, rows=2)
    assert metrics.rows == [("adapt", 5, "loss", 0.5), ("adapt", 10, "loss", 0.4)]
    assert path.read_text() == head
    metrics.add("adapt", 15, {"loss": 0.25})
    assert path.read_text() == head + "adapt,15,loss,0.25\n"


@pytest.mark.parametrize("content", [None, "", "phase,step,metric,value\nadapt,5,loss,0.5\n", "a\n1\n2\n", "\0" * 50])
def test_entries_that_are_lost_stop_the_run(tmp_path, content):
    path = tmp_path / "metrics.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RunError, match="has lost or changed some of the 2 entries"):
        Metrics(path, rows=2)


def test_entries_that_were_changed_stop_the_run(tmp_path):
    path = tmp_path / "metrics.csv"
    first = Metrics(path)
    first.add("adapt", 5, {"loss": 0.5, "risk": 0.25})
    digest = first.digest
    first.add("adapt", 10, {"loss": 0.1})
    assert Metrics(path, rows=2, digest=digest).digest == digest
    path.write_text(path.read_text().replace("0.25", "0.26"))
    with pytest.raises(RunError, match="has lost or changed some of the 2 entries"):
        Metrics(path, rows=2, digest=digest)


def test_a_start_without_a_checkpoint_begins_a_new_file(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("phase,step,metric,value\nadapt,5,loss,0.5\n")
    assert Metrics(path, rows=0).rows == []
    assert path.read_text() == "phase,step,metric,value\n"


@given(values=st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_float_survives_the_file_bit_for_bit(tmp_path, values):
    path = tmp_path / "metrics.csv"
    first = Metrics(path)
    for step, value in enumerate(values):
        first.add("adapt", step, {"loss": value})
    before = path.read_bytes()
    again = Metrics(path, rows=len(values))
    assert again.rows == first.rows
    assert [math.copysign(1, row[3]) for row in again.rows] == [math.copysign(1, value) for value in values]
    assert path.read_bytes() == before
