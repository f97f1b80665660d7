"""A stage that several runs share is done once, and no run can tell that it did not do it itself."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import threading
import time

import numpy as np
import pandas as pd
import pytest
import torch

from conftest import command, environment, make_pair
from robustda import RDA
from robustda.cli import main
from robustda.errors import RobustDAWarning, RunError
from robustda.stages import Stage, StageStore

RUNTIME = {"device": "cpu", "tensorboard": False, "log_every": 10}


def small_rda(**params) -> RDA:
    return RDA(
        **{"width": 8, "steps": 20, "batch_size": 16, "epochs": 2, "noise_rate": 0.4, "backbone": "identity", **params}
    )


def stored(folder) -> list[str]:
    return sorted(path.name for path in folder.glob("*.json"))


def test_a_run_on_another_target_takes_the_stage_over_and_is_the_run_it_would_have_been(pair, tmp_path):
    other = make_pair(seed=3).target
    alone = small_rda().fit(pair.source, other, out=tmp_path / "alone", **RUNTIME)
    small_rda().fit(pair.source, pair.target, stages=tmp_path / "stages", **RUNTIME)
    assert len(stored(tmp_path / "stages")) == 1
    taken = small_rda().fit(pair.source, other, out=tmp_path / "taken", stages=tmp_path / "stages", **RUNTIME)
    assert len(stored(tmp_path / "stages")) == 1
    for name, tensor in alone.network_.state_dict().items():
        assert torch.equal(tensor, taken.network_.state_dict()[name])
    pd.testing.assert_frame_equal(alone.history_, taken.history_)
    for file in ("trust.csv", "predictions.csv", "metrics.csv"):
        assert (tmp_path / "alone" / file).read_bytes() == (tmp_path / "taken" / file).read_bytes()
    ignored = {"seconds": 0}
    assert alone.summary_ | ignored == taken.summary_ | ignored


@pytest.mark.parametrize("kind", [{"seed": 1}, {"noise_rate": 0.2}, {"epochs": 3}, {"width": 9}, {"decay": 0.0}])
def test_what_a_stage_depends_on_keeps_runs_apart(pair, tmp_path, kind):
    for params in ({}, kind):
        small_rda(**params).fit(pair.source, pair.target, stages=tmp_path, **RUNTIME)
    assert len(stored(tmp_path)) == 2


def test_other_labels_are_another_source(pair, tmp_path):
    for source in (pair.source, pair.record.restore(pair.source)):
        small_rda().fit(source, pair.target, stages=tmp_path, **RUNTIME)
    assert len(stored(tmp_path)) == 2


CHANGED = {
    "variant": "authors",
    "steps": 30,
    "learning_rate": 0.02,
    "alpha": 2.0,
    "beta": 0.3,
    "beta_rise": 0.0,
    "rebalance": False,
    "online_threshold": 3.0,
    "online_warm_up": 0.5,
    "proxy_share": 0.5,
    "proxy_size": "grow",
    "first_pair": True,
    "classifier_on": "proxy",
    "feature_noisy": "delete",
    "del_pmd": True,
}


def test_every_option_that_is_said_not_to_matter_is_tried_below():
    assert set(CHANGED) == RDA.shared_stages["filter"]


@pytest.mark.parametrize("option", CHANGED)
def test_the_options_that_are_said_not_to_matter_do_not_matter(pair, tmp_path, option):
    plain = small_rda().fit(pair.source, pair.target, out=tmp_path / "plain", **RUNTIME)
    changed = small_rda(**{option: CHANGED[option]}).fit(pair.source, pair.target, out=tmp_path / "changed", **RUNTIME)
    np.testing.assert_array_equal(plain.trust_, changed.trust_)
    assert (tmp_path / "plain" / "trust.csv").read_bytes() == (tmp_path / "changed" / "trust.csv").read_bytes()


@pytest.mark.parametrize("damage", ["cut", "other", "no note", "nonsense"])
def test_a_damaged_stage_is_made_again(pair, tmp_path, damage):
    first = small_rda().fit(pair.source, pair.target, stages=tmp_path, **RUNTIME)
    note = tmp_path / stored(tmp_path)[0]
    tensors = note.with_suffix(".safetensors")
    content = tensors.read_bytes()
    if damage == "cut":
        tensors.write_bytes(content[:100])
    elif damage == "other":
        tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "no note":
        note.unlink()
    else:
        note.write_text(json.dumps({"digest": 3}))
    again = small_rda().fit(pair.source, pair.target, stages=tmp_path, **RUNTIME)
    np.testing.assert_array_equal(first.trust_, again.trust_)
    assert tensors.read_bytes() == content


def test_only_one_run_at_a_time_works_on_a_stage(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    store = StageStore(tmp_path)
    with store.held("key"), open(tmp_path / "key.lock") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(tmp_path / "key.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_who_waits_for_a_stage_gets_it_when_it_is_free(tmp_path):
    store, order = StageStore(tmp_path), []

    def wait() -> None:
        with store.held("key"):
            order.append("second")

    with store.held("key"):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


@pytest.mark.parametrize(("by", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_run_that_waits_for_a_stage_can_be_stopped(pair, tmp_path, by, code):
    for name in ("source", "target"):
        getattr(pair, name).save_npz(tmp_path / f"{name}.npz")
    settings = [
        "--method",
        "rda",
        "--width",
        "8",
        "--steps",
        "20",
        "--batch_size",
        "16",
        "--epochs",
        "2",
        "--noise_rate",
        "0.4",
    ]
    fit = ["fit", "--source", tmp_path / "source.npz", "--target", tmp_path / "target.npz", *settings]
    fit += ["--device", "cpu", "--stages", tmp_path / "stages", "--out", tmp_path / "run"]
    assert main([str(argument) for argument in fit]) == 0
    note = tmp_path / "stages" / stored(tmp_path / "stages")[0]
    note.unlink()
    with StageStore(tmp_path / "stages").held(note.stem):
        waiting = subprocess.Popen(command(*fit[:-1], tmp_path / "other"), env=environment(), stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not (tmp_path / "other" / "metrics.csv").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)  # from there it is a moment until it waits
        assert waiting.poll() is None
        waiting.send_signal(getattr(signal, by))
        _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == code
    assert said.decode().count("\n") == 1
    assert "takes it up again" in said.decode()


def test_a_folder_that_cannot_be_one_is_said_before_any_work(pair, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot keep stages in .*file .*: choose another folder for --stages"):
        small_rda().fit(pair.source, pair.target, stages=tmp_path / "file", out=tmp_path / "run", **RUNTIME)
    (tmp_path / "stages").mkdir()
    key = StageStore(tmp_path / "stages").key(small_rda(), "filter", {})
    (tmp_path / "stages" / f"{key}.lock").mkdir()
    with pytest.raises(RunError, match="cannot keep stages"), StageStore(tmp_path / "stages").held(key):
        pytest.fail("it is held")


def test_where_a_disk_knows_no_locks_the_owner_that_is_named_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    def no_locks(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    (tmp_path / "key.lock").write_text("process 1 on elsewhere\n")
    store = StageStore(tmp_path)
    refused = r"in use by process 1 on elsewhere: .*--stages \(if that is over, delete"
    with pytest.raises(RunError, match=refused), store.held("key"):
        pytest.fail("it is held")
    (tmp_path / "key.lock").unlink()
    with store.held("key"):
        assert (tmp_path / "key.lock").read_text().startswith("process ")
    assert (tmp_path / "key.lock").read_text() == ""


def test_a_stage_that_cannot_be_kept_costs_a_warning_and_not_the_run(pair, tmp_path, monkeypatch):
    def full(path, tensors):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("robustda.stages.save_tensors", full)
    with pytest.warns(RobustDAWarning, match=r"cannot keep a stage in .*No space left on device"):
        model = small_rda().fit(pair.source, pair.target, stages=tmp_path / "s", out=tmp_path / "run", **RUNTIME)
    assert not stored(tmp_path / "s")
    assert len(model.trust_) == len(pair.source)


def test_without_a_folder_nothing_is_kept():
    store = StageStore(None)
    assert store.key(small_rda(), "filter", {}) is None
    with store.held(None):
        store.save(None, Stage({}, [], 0.0))
    assert store.load(None) is None
