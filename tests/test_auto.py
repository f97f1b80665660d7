"""fit --method auto: what is tried, what is chosen and why, and that nothing of it looks at target labels."""

from __future__ import annotations

import json
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from conftest import make_pair
from robustda import MDD, Domain, load
from robustda.auto import Candidate, _ranked, _take, _why, fit_auto
from robustda.cli import main
from robustda.decisions import apply_decisions
from robustda.errors import ConfigError, RunError
from robustda.expect import Expected, opinions
from robustda.files import write_whole
from robustda.report.run_read import read_run
from robustda.tracking import TRACKERS

RUNTIME = {"device": "cpu", "tensorboard": False, "progress": False, "settings": {"width": 16, "batch_size": 16}}


def quiet(_: str) -> None:
    pass


def test_without_time_the_fast_method_is_all_there_is(pair, tmp_path):
    said: list[str] = []
    model, tried = fit_auto(pair.source, pair.target, out=tmp_path / "run", say=said.append, **RUNTIME)
    assert [one.method for one in tried] == ["clarity"]
    assert model.name == "clarity"
    assert said[-1].startswith("clarity: about ")
    again = load(tmp_path / "run", device="cpu")
    np.testing.assert_array_equal(again.predict(pair.target), model.predict(pair.target))
    note = json.loads((tmp_path / "run" / "auto.json").read_text())
    assert note["chosen"] == "clarity"
    assert 0 <= note["candidates"][0]["expected"]["low"] <= note["candidates"][0]["expected"]["high"] <= 1


def test_with_time_rda_is_tried_and_the_more_promising_one_wins(pair, tmp_path):
    model, tried = fit_auto(pair.source, pair.target, out=tmp_path / "run", minutes=10, say=quiet, **RUNTIME)
    assert {one.method for one in tried} == {"clarity", "rda"}
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
    assert [one.method for one in tried] == ["clarity"]
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
    clear = [Candidate("rda", Expected(0.9, 0.86, 0.94), 9, 9), Candidate("clarity", Expected(0.7, 0.66, 0.74), 1, 0)]
    assert _why(clear) == "rda: about 90% of the target should be right (86% to 94%), against 70% with clarity"
    close = [clear[0], Candidate("clarity", Expected(0.89, 0.85, 0.93), 1, 0)]
    assert _why(close).endswith("too close to be sure")
    assert _why(close[::-1]).endswith("too close to be sure, and clarity is right more often then")
    unsure = [Candidate("clarity", Expected(0.85, 0.84, 0.86), 1, 0), Candidate("rda", Expected(0.88, 0.8, 0.96), 9, 9)]
    assert _ranked(unsure) == unsure
    assert _why(unsure).endswith("clarity is right more often then"), "whichever of the two is known less well"


@pytest.mark.parametrize(("expected", "first"), [(0.95, "rda"), (0.86, "clarity"), (0.84, "clarity"), (0.6, "clarity")])
def test_rda_must_be_better_by_a_clear_margin(expected, first):
    """A quarter of the interval, which is two points here."""
    slow = Candidate("rda", Expected(expected, expected - 0.04, expected + 0.04), 9, 9)
    ranked = _ranked([Candidate("clarity", Expected(0.85, 0.81, 0.89), 1, 0), slow])
    assert ranked[0].method == first
    assert len(ranked) == 2


def test_the_command(pair, tmp_path, capsys):
    for name in ("source", "target"):
        domain = getattr(pair, name)
        np.savez(tmp_path / f"{name}.npz", x=domain.x, y=domain.labels)
    command = ["fit", "--method", "auto", "--source", str(tmp_path / "source.npz"), "--target"]
    command += [str(tmp_path / "target.npz"), "--out", str(tmp_path / "run"), "--device", "cpu"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "clarity: about" in out
    assert "target accuracy" in out
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "target.npz"), "--out", str(tmp_path / "p.csv")]) == 0
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page")]) == 0
    capsys.readouterr()
    for minutes in ("-1", "nan", "inf", "-inf", "soon"):
        assert main([*command, f"--minutes={minutes}"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"robustda: error: minutes is {minutes!r}" if minutes == "soon" else "robustda: error: ")
        assert said.count("\n") == 1
    decide(pair, tmp_path / "decisions.csv")
    command[command.index("--out") + 1] = str(tmp_path / "decided")
    assert main([*command, "--decisions", str(tmp_path / "decisions.csv")]) == 0
    assert (tmp_path / "decided" / "decisions.csv").exists()
    assert main([*command, "--decisions", str(tmp_path / "nowhere.csv")]) == 2
    assert "cannot read the decisions" in capsys.readouterr().err


@pytest.mark.parametrize("minutes", [-1, float("nan"), float("inf"), -float("inf")])
def test_a_time_that_is_none_is_refused(pair, tmp_path, minutes):
    with pytest.raises(ConfigError, match=f"minutes is {minutes}: give a number"):
        fit_auto(pair.source, pair.target, out=tmp_path, minutes=minutes, say=quiet, **RUNTIME)
    assert not list(tmp_path.iterdir())


def test_several_ranks_are_refused(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ConfigError, match="auto runs in one process: start it without torchrun"):
        fit_auto(pair.source, pair.target, out=tmp_path, say=quiet, **RUNTIME)
    assert not list(tmp_path.iterdir())


class Notebook:
    """A tracker that writes down whom it was told about."""

    keeps = False
    told: ClassVar[list[str]] = []

    def start(self, about, identity):
        self.told.append(about.name)
        return ""

    def log(self, phase, step, at, values):
        pass

    def finish(self, summary):
        pass


def test_measuring_the_time_of_a_step_leaves_no_trace(pair, tmp_path, monkeypatch):
    monkeypatch.setitem(TRACKERS, "notebook", (Notebook, "json"))
    monkeypatch.setattr(Notebook, "told", [])
    how = {**RUNTIME, "track": "notebook", "stages": tmp_path / "stages", "select": "im"}
    fit_auto(pair.source, pair.target, out=tmp_path / "run", minutes=10, say=quiet, **how)
    assert Notebook.told == ["clarity", "rda"]
    assert len(list((tmp_path / "stages").glob("*.json"))) == 1  # RDA's own curriculum
    # Nor where the time is too short for more than measuring it.
    monkeypatch.setattr("robustda.auto._FEWEST_STEPS", 10**9)
    Notebook.told.clear()
    how |= {"stages": tmp_path / "none"}
    fit_auto(pair.source, pair.target, out=tmp_path / "short", minutes=10, say=quiet, **how)
    assert Notebook.told == ["clarity"]
    assert not (tmp_path / "none").exists()


def test_mlflow_hears_of_the_candidates_alone(pair, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'mlruns'}")
    fit_auto(pair.source, pair.target, out=tmp_path / "run", minutes=10, say=quiet, **{**RUNTIME, "track": "mlflow"})
    client = mlflow.MlflowClient(tracking_uri=f"file://{tmp_path / 'mlruns'}")
    experiment = client.get_experiment_by_name("robustda")
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["clarity", "rda"]


def test_more_time_later_is_used(pair, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("robustda.auto._FEWEST_STEPS", 10**9)
        fit_auto(pair.source, pair.target, out=tmp_path, minutes=10, say=quiet, **RUNTIME)
    _, tried = fit_auto(pair.source, pair.target, out=tmp_path, minutes=10, say=quiet, **RUNTIME)
    assert {one.method for one in tried} == {"clarity", "rda"}


def decide(pair, path):
    """Put the first wrong labels right, and drop the next example."""
    wrong = np.flatnonzero(pair.record.restore(pair.source).y != pair.source.y)[:20]
    right = pair.record.restore(pair.source).labels
    lines = [f"{pair.source.ids[row]},relabel,{right[row]}" for row in wrong]
    kept = np.setdiff1d(np.arange(len(pair.source)), wrong)
    lines.append(f"{pair.source.ids[kept[0]]},drop,")
    path.write_text("\n".join(["id,decision,label", *lines]) + "\n")
    return wrong, kept[0]


def test_decisions_reach_every_candidate_and_the_views(pair, tmp_path, monkeypatch):
    wrong, dropped = decide(pair, tmp_path / "decisions.csv")
    seen = []

    def watched(here, labels, *rest, **more):
        seen.append((len(here), labels))
        return opinions(here, labels, *rest, **more)

    monkeypatch.setattr("robustda.auto.opinions", watched)
    how = {**RUNTIME, "decisions": tmp_path / "decisions.csv", "say": quiet, "minutes": 10}
    fit_auto(pair.source, pair.target, out=tmp_path / "run", **how)
    applied = apply_decisions(pair.source, tmp_path / "decisions.csv")
    assert seen[0][0] == len(pair.source) - 1
    np.testing.assert_array_equal(seen[0][1], applied.y)
    content = (tmp_path / "decisions.csv").read_bytes()
    for folder in ("run", "run/candidates/clarity", "run/candidates/rda"):
        assert (tmp_path / folder / "decisions.csv").read_bytes() == content
    trust = pd.read_csv(tmp_path / "run" / "candidates" / "rda" / "trust.csv", dtype={"id": str}).set_index("id")
    assert pair.source.ids[dropped] not in trust.index
    assert (trust.loc[pair.source.ids[wrong], "weight"] == 1).all()  # what a person has looked at is trusted


def test_decisions_about_examples_without_a_label_count(pair, tmp_path):
    y = np.where(np.arange(len(pair.source)) == 3, -1, pair.source.y)
    (tmp_path / "decisions.csv").write_text(f"id,decision,label\n{pair.source.ids[3]},relabel,ant\n")
    how = {**RUNTIME, "decisions": tmp_path / "decisions.csv", "say": quiet}
    fit_auto(pair.source.with_labels(y), pair.target, out=tmp_path / "run", **how)
    assert len(pd.read_csv(tmp_path / "run" / "trust.csv")) == len(pair.source)


def test_the_folder_is_that_of_a_finished_run(pair, tmp_path):
    fit_auto(pair.source, pair.target, out=tmp_path / "run", say=quiet, **RUNTIME)
    assert read_run(tmp_path / "run").done
    with pytest.raises(RunError, match="holds a run of --method auto: choose another --out"):
        MDD(steps=5, width=8).fit(pair.source, pair.target, out=tmp_path / "run", device="cpu", tensorboard=False)


def test_a_run_of_one_method_is_not_overwritten(pair, tmp_path):
    MDD(steps=5, width=8).fit(pair.source, pair.target, out=tmp_path, device="cpu", tensorboard=False)
    before = (tmp_path / "model.json").read_bytes()
    with pytest.raises(RunError, match="holds a run of one method: choose another --out"):
        fit_auto(pair.source, pair.target, out=tmp_path, say=quiet, **RUNTIME)
    assert (tmp_path / "model.json").read_bytes() == before


def test_stopped_between_any_two_files_it_never_looks_finished_and_goes_on(pair, tmp_path, monkeypatch):
    """The second winner takes the place of the first; whatever was written when it ends, load says so or is right."""
    fit_auto(pair.source, pair.target, out=tmp_path, say=quiet, **RUNTIME)
    fit_auto(pair.source, pair.target, out=tmp_path, minutes=10, say=quiet, **RUNTIME)
    winners = {name: load(tmp_path / "candidates" / name, device="cpu") for name in ("clarity", "rda")}

    class Killed(BaseException):
        pass

    looked = 0
    for name, other in (("clarity", "rda"), ("rda", "clarity")):
        _take(tmp_path, Candidate(other, Expected(1, 1, 1), 0, 0), {})
        for last in range(30):
            written = 0

            def write(path, content, last=last):
                nonlocal written
                written += 1
                if written > last:
                    raise Killed
                write_whole(path, content)

            with monkeypatch.context() as patch:
                patch.setattr("robustda.auto.write_whole", write)
                try:
                    _take(tmp_path, Candidate(name, Expected(1, 1, 1), 0, 0), {})
                    break
                except Killed:
                    looked += 1
            if (tmp_path / "model.json").exists():
                assert load(tmp_path, device="cpu").name == name
            else:
                with pytest.raises(RunError, match="holds no finished run"):
                    load(tmp_path, device="cpu")
                assert not (tmp_path / "done").exists()
        found = load(tmp_path, device="cpu")
        np.testing.assert_array_equal(found.predict_proba(pair.target), winners[name].predict_proba(pair.target))
        # Nothing is left of the other one.
        files = {path.name for path in (tmp_path / "candidates" / name).iterdir() if path.is_file()} - {"lock"}
        assert files | {"auto.json", "auto-plan.json"} == {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert looked > 10


def test_a_damaged_plan_is_said(pair, tmp_path):
    fit_auto(pair.source, pair.target, out=tmp_path, say=quiet, **RUNTIME)
    (tmp_path / "auto-plan.json").write_text("[1]")
    with pytest.raises(RunError, match=r"auto-plan.json is not the plan that was written: delete it"):
        fit_auto(pair.source, pair.target, out=tmp_path, minutes=10, say=quiet, **RUNTIME)
