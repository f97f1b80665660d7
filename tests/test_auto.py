"""fit --method auto: what is tried, what is chosen and why, and that nothing of it looks at target labels."""

from __future__ import annotations

import json

import numpy as np
import pytest

from conftest import make_pair
from robustda import Domain, load
from robustda.auto import Candidate, _why, fit_auto
from robustda.cli import main
from robustda.errors import ConfigError
from robustda.expect import Expected

RUNTIME = {"device": "cpu", "tensorboard": False, "progress": False, "settings": {"width": 16, "batch_size": 16}}


def quiet(_: str) -> None:
    pass


def test_without_time_the_fast_method_is_all_there_is(pair, tmp_path):
    said: list[str] = []
    model, tried = fit_auto(pair.source, pair.target, out=tmp_path / "run", say=said.append, **RUNTIME)
    assert [one.method for one in tried] == ["concord"]
    assert model.name == "concord"
    assert said[-1].startswith("concord: about ")
    again = load(tmp_path / "run", device="cpu")
    np.testing.assert_array_equal(again.predict(pair.target), model.predict(pair.target))
    note = json.loads((tmp_path / "run" / "auto.json").read_text())
    assert note["chosen"] == "concord"
    assert 0 <= note["candidates"][0]["expected"]["low"] <= note["candidates"][0]["expected"]["high"] <= 1


def test_with_time_rda_is_tried_and_the_more_promising_one_wins(pair, tmp_path):
    model, tried = fit_auto(pair.source, pair.target, out=tmp_path / "run", minutes=10, say=quiet, **RUNTIME)
    assert {one.method for one in tried} == {"concord", "rda"}
    assert tried[0].expected.value >= tried[1].expected.value
    assert model.name == tried[0].method
    assert (tmp_path / "run" / "predictions.csv").read_bytes() == (
        tmp_path / "run" / "candidates" / model.name / "predictions.csv"
    ).read_bytes()
    # Once more: nothing is done again, and the plan is the one that was made.
    plan = (tmp_path / "run" / "auto-plan.json").read_text()
    again, same = fit_auto(pair.source, pair.target, out=tmp_path / "run", minutes=0.001, say=quiet, **RUNTIME)
    assert (tmp_path / "run" / "auto-plan.json").read_text() == plan
    assert [one.method for one in same] == [one.method for one in tried]
    np.testing.assert_array_equal(again.predict_proba(pair.target), model.predict_proba(pair.target))


def test_too_little_time_for_rda_is_said(pair, tmp_path, monkeypatch):
    monkeypatch.setattr("robustda.auto._FEWEST_STEPS", 10**9)  # no machine is so fast
    said: list[str] = []
    _, tried = fit_auto(pair.source, pair.target, out=tmp_path, minutes=10, say=said.append, **RUNTIME)
    assert [one.method for one in tried] == ["concord"]
    assert any("RDA would take about" in line and "--minutes" in line for line in said)


def test_labels_of_the_target_have_no_part_in_the_choice(tmp_path):
    pair = make_pair(seed=2)
    shuffled = Domain.from_arrays(np.asarray(pair.target.x), np.roll(pair.target.labels, 7), name="target")
    chosen = [
        fit_auto(pair.source, target, out=tmp_path / name, minutes=1000, say=quiet, **RUNTIME)[1]
        for name, target in (("right", pair.target), ("wrong", shuffled), ("none", pair.target.unlabelled()))
    ]
    keys = [[(one.method, one.expected) for one in tried] for tried in chosen]
    assert keys[0] == keys[1] == keys[2]


def test_the_reason_in_words():
    clear = [Candidate("rda", Expected(0.9, 0.86, 0.94), 9, 9), Candidate("concord", Expected(0.7, 0.6, 0.8), 1, 0)]
    assert _why(clear) == "rda: about 90% of the target should be right (86% to 94%), against 70% with concord"
    close = [clear[0], Candidate("concord", Expected(0.89, 0.85, 0.93), 1, 0)]
    assert _why(close).endswith("too close to be sure")


def test_the_command(pair, tmp_path, capsys):
    for name in ("source", "target"):
        domain = getattr(pair, name)
        np.savez(tmp_path / f"{name}.npz", x=domain.x, y=domain.labels)
    command = ["fit", "--method", "auto", "--source", str(tmp_path / "source.npz"), "--target"]
    command += [str(tmp_path / "target.npz"), "--out", str(tmp_path / "run"), "--device", "cpu"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "concord: about" in out
    assert "target accuracy" in out
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "target.npz"), "--out", str(tmp_path / "p.csv")]) == 0
    assert main([*command, "--minutes", "-1"]) == 2


def test_a_negative_time_is_refused(pair, tmp_path):
    with pytest.raises(ConfigError, match="minutes is -1"):
        fit_auto(pair.source, pair.target, out=tmp_path, minutes=-1, say=quiet, **RUNTIME)
