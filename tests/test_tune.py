"""Tuning: the best by a criterion that sees no target label, in a study that can be interrupted at any time."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from conftest import command, environment, make_pair
from robustda.auto import fit_auto
from robustda.cli import main
from robustda.data.domain import Domain
from robustda.errors import ConfigError, RobustDAWarning, RunError
from robustda.files import Lock
from robustda.methods import create_method
from robustda.search_space import Choice, Range, combinations, read_space
from robustda.select import information_maximisation, nuclear_norm
from robustda.tune import score_of, tune

needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="optuna is not installed")

QUICK: dict[str, Any] = {"device": "cpu", "progress": False, "tensorboard": False}
PARAMS: dict[str, Any] = {"width": 8, "batch_size": 16, "steps": 40, "beta_rise": 20.0}


# The space needs no Optuna.


def test_the_space_is_read_from_text_and_from_python() -> None:
    space = read_space(
        "rda", ["learning_rate=0.001:0.1:log", "epochs=5:40", "keep_rule=paper,plain", "rebalance=true,false"]
    )
    assert space["learning_rate"] == Range(0.001, 0.1, log=True)
    assert space["epochs"] == Range(5, 40, whole=True)
    assert space["keep_rule"] == Choice(("paper", "plain"))
    assert space["rebalance"] == Choice((True, False))
    assert read_space("rda", ["noise_rate=auto,0.2"])["noise_rate"] == Choice(("auto", 0.2))
    assert read_space("rda", ["alpha=2,4"])["alpha"] == Choice((2.0, 4.0))
    given = {"learning_rate": (0.001, 0.1, "log"), "epochs": (5, 40), "keep_rule": ["paper", "plain"]}
    assert read_space("rda", given) == {name: space[name] for name in given}
    assert combinations(space) is None
    assert combinations(read_space("mdd", ["beta=0.1,0.2", "width=8,16,8"])) == [
        {"beta": beta, "width": width} for beta in (0.1, 0.2) for width in (8, 16)
    ]


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("beta", "cannot read the search"),
        ("beta=1", "one value only"),
        ("beta=1:1", "low below high"),
        ("beta=1:2:lin", "low:high:log"),
        ("beta=0:1:log", "a logarithm needs more than 0"),
        ("beta=-1:1", "at least 0"),
        ("width=1.5:9", "whole numbers"),
        ("augment=1:2", "values with commas"),
        ("augment=none,all", "choose one of auto, photo, shift, none"),
        ("bta=1:2", "did you mean 'beta'"),
        ("method=rda,mdd", "no option 'method'"),
    ],
)
def test_a_space_that_cannot_be_is_one_line(search: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_space("mdd", [search])
    with pytest.raises(ConfigError, match="searched twice"):
        read_space("mdd", ["beta=1:2", "beta=1,2"])
    with pytest.raises(ConfigError, match="nothing to search"):
        read_space("mdd", [])


def test_without_optuna_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'robustda\[tune\]'"):
        tune("mdd", *make_pair(size=40)[:2], ["beta=1:2"], out=tmp_path)


# With it.


@pytest.fixture(scope="module")
def data() -> tuple[Domain, Domain]:
    return make_pair(size=120, target_size=100)[:2]


@pytest.fixture(scope="module")
def study(data: tuple[Domain, Domain], tmp_path_factory: pytest.TempPathFactory) -> Any:
    search = {"learning_rate": (0.002, 0.1, "log"), "beta": [0.05, 0.2]}
    return tune("mdd", *data, search, out=tmp_path_factory.mktemp("s") / "study", trials=6, params=PARAMS, **QUICK)


@needs_optuna
def test_the_best_is_the_one_that_the_criterion_likes(study: Any, data: tuple[Domain, Domain]) -> None:
    table = study.table
    assert table["trial"].tolist() == list(range(6))
    assert (table["state"] == "ended").all()
    assert table["learning_rate"].between(0.002, 0.1).all()
    assert set(table["beta"]) <= {0.05, 0.2}
    assert study.best_score == table["score"].max()
    assert study.best == table["score"].idxmax()
    for line in table.to_dict("records"):
        params = {**PARAMS, "learning_rate": line["learning_rate"], "beta": line["beta"]}
        config = json.loads((study.folder / line["folder"] / "config.json").read_text())
        assert config["params"] == create_method("mdd", **params).params()
    line = table.iloc[study.best]
    method = create_method("mdd", **PARAMS, **study.best_params).fit(*data, **QUICK)
    probabilities = torch.as_tensor(method.predict_proba(data[1]))
    assert line["score"] == pytest.approx(float(information_maximisation(probabilities)), rel=1e-4)
    assert score_of(method, data[1], "bnm") == pytest.approx(float(nuclear_norm(probabilities)), rel=1e-4)
    assert pd.read_csv(study.folder / "trials.csv")["score"].tolist() == pytest.approx(table["score"].tolist())


@needs_optuna
def test_no_label_of_the_target_plays_a_part(study: Any, data: tuple[Domain, Domain], tmp_path: Path) -> None:
    source, target = data
    search = {"learning_rate": (0.002, 0.1, "log"), "beta": [0.05, 0.2]}
    wrong = target.with_labels(np.roll(target.y, 1))
    for number, other in enumerate((target.unlabelled(), wrong)):
        found = tune("mdd", source, other, search, out=tmp_path / str(number), trials=6, params=PARAMS, **QUICK)
        shown = ["trial", "score", "learning_rate", "beta"]
        pd.testing.assert_frame_equal(found.table[shown], study.table[shown])
        assert found.best == study.best


@needs_optuna
def test_best_yaml_is_read_by_fit(study: Any, data: tuple[Domain, Domain], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for domain, name in zip(data, ("source", "target"), strict=True):
        domain.save_npz(tmp_path / f"{name}.npz")
    arguments = ["tune", "--method=mdd", "--source=source.npz", "--target=target.npz", "--out=study", "--trials=3"]
    arguments += ["--search", "learning_rate=0.002:0.1:log", "--search=beta=0.05,0.2", "--device=cpu"]
    arguments += [f"--{name}={value}" for name, value in PARAMS.items()]
    assert main([*arguments, "--tensorboard=false"]) == 0
    best = yaml.safe_load((tmp_path / "study" / "best.yaml").read_text())
    assert best["method"] == "mdd"
    assert best["source"] == "source.npz"
    assert main(["fit", "--config", "study/best.yaml", "--out", "run", "--device=cpu", "--tensorboard=false"]) == 0
    number = pd.read_csv("study/trials.csv")["score"].idxmax()
    chosen = tmp_path / "study" / "trials" / f"{number:03d}"
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (chosen / "model.safetensors").read_bytes()


@needs_optuna
def test_going_on_is_as_if_it_had_never_stopped(study: Any, data: tuple[Domain, Domain], tmp_path: Path) -> None:
    search = {"learning_rate": (0.002, 0.1, "log"), "beta": [0.05, 0.2]}
    for trials in (2, 5, 6):
        found = tune("mdd", *data, search, out=tmp_path / "study", trials=trials, params=PARAMS, **QUICK)
        assert len(found.table) == trials
    pd.testing.assert_frame_equal(found.table.drop(columns="seconds"), study.table.drop(columns="seconds"))


@needs_optuna
@pytest.mark.slow
def test_a_study_that_was_interrupted_goes_on(data: tuple[Domain, Domain], tmp_path: Path) -> None:
    for domain, name in zip(data, ("source", "target"), strict=True):
        domain.save_npz(tmp_path / f"{name}.npz")
    arguments = ["tune", "--method=mdd", "--source=source.npz", "--target=target.npz", "--trials=4", "--device=cpu"]
    arguments += ["--search=learning_rate=0.005:0.05:log", "--steps=600", "--width=32", "--batch_size=16"]
    arguments += ["--log_every=50", "--checkpoint_seconds=0", "--tensorboard=false"]
    subprocess.run(command(*arguments, "--out=whole"), env=environment(), cwd=tmp_path, check=True, capture_output=True)
    metrics = tmp_path / "stopped" / "trials" / "001" / "metrics.csv"
    with subprocess.Popen(
        command(*arguments, "--out=stopped"), env=environment(), cwd=tmp_path, stderr=subprocess.PIPE
    ) as process:
        while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") > 30):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1].decode()
    assert process.returncode == 130
    assert said.splitlines() == ["robustda: interrupted; the same command with --out takes it up again"]
    before = pd.read_csv(tmp_path / "stopped" / "trials.csv")
    assert before["state"].tolist() == ["ended", "not ended"]
    assert list((metrics.parent / "checkpoints").iterdir())
    subprocess.run(
        command(*arguments, "--out=stopped"), env=environment(), cwd=tmp_path, check=True, capture_output=True
    )
    for name in ("whole", "stopped"):
        assert (pd.read_csv(tmp_path / name / "trials.csv")["state"] == "ended").all()
    shown = ["trial", "score", "learning_rate", "target_accuracy"]
    whole, stopped = (pd.read_csv(tmp_path / name / "trials.csv")[shown] for name in ("whole", "stopped"))
    pd.testing.assert_frame_equal(whole, stopped)
    for number in range(4):
        files = [
            (tmp_path / name / "trials" / f"{number:03d}" / "metrics.csv").read_bytes() for name in ("whole", "stopped")
        ]
        assert files[0] == files[1]


@needs_optuna
def test_few_combinations_are_each_tried_once(data: tuple[Domain, Domain], tmp_path: Path) -> None:
    found = tune("prototypes", *data, {"rounds": [0, 1, 2]}, out=tmp_path / "a", trials=20, **QUICK)
    assert sorted(found.table["rounds"]) == [0, 1, 2]
    first = tune("prototypes", *data, {"rounds": [0, 1, 2]}, out=tmp_path / "b", trials=2, **QUICK)
    assert len(first.table) == 2
    more = tune("prototypes", *data, {"rounds": [0, 1, 2]}, out=tmp_path / "b", trials=20, **QUICK)
    assert set(more.table["rounds"]) == {0, 1, 2}


@needs_optuna
def test_a_trial_that_diverges_does_not_end_the_study(data: tuple[Domain, Domain], tmp_path: Path) -> None:
    search = {"learning_rate": [0.01, 1000.0]}
    with pytest.warns(RobustDAWarning, match="trial 1 failed: training diverged"):
        found = tune("mdd", *data, search, out=tmp_path / "study", params=PARAMS, **QUICK)
    assert found.table["state"].tolist() == ["ended", "failed"]
    assert found.best_params == {"learning_rate": 0.01}
    assert found.best_run == tmp_path / "study" / "trials" / "000"


@needs_optuna
def test_dev_is_computed_when_it_is_asked_for(data: tuple[Domain, Domain], tmp_path: Path) -> None:
    search = {"beta": [0.05, 0.2]}
    found = tune("mdd", *data, search, out=tmp_path / "s", params=PARAMS, criterion="dev", eval_every=20, **QUICK)
    logged = pd.read_csv(tmp_path / "s" / "trials" / "000" / "metrics.csv").query("metric == 'select_dev'")["value"]
    assert found.table["score"][0] == logged.max()
    with pytest.raises(ConfigError, match="no dev"):
        tune("prototypes", *data, {"rounds": [0, 1]}, out=tmp_path / "p", criterion="dev", **QUICK)


@needs_optuna
def test_the_plot_shows_every_trial(study: Any) -> None:
    from PIL import Image

    image = np.asarray(Image.open(study.folder / "trials.png").convert("RGB")).astype(int)
    blue = (abs(image - [0x2D, 0x88, 0xC2]).sum(axis=2) < 60).sum()
    orange = (abs(image - [0xD5, 0x5E, 0x00]).sum(axis=2) < 30).sum()
    assert blue > 100
    assert orange > 100
    drawn = (study.folder / "trials.svg").read_text(encoding="utf-8")
    assert drawn.lstrip().startswith("<?xml")
    assert "<svg" in drawn


@needs_optuna
def test_other_settings_are_refused_and_so_is_a_second_process(study: Any, data: tuple[Domain, Domain], tmp_path: Path):
    search = {"learning_rate": (0.002, 0.2, "log"), "beta": [0.05, 0.2]}
    with pytest.raises(RunError, match=re.escape("learning_rate '0.002:0.1:log' → '0.002:0.2:log'")):
        tune("mdd", *data, search, out=study.folder, trials=7, params=PARAMS, **QUICK)
    search["learning_rate"] = (0.002, 0.1, "log")
    held = Lock(study.folder / "lock")
    with pytest.raises(RunError, match="in use by process"):
        tune("mdd", *data, search, out=study.folder, trials=7, params=PARAMS, **QUICK)
    held.close()
    with pytest.raises(ConfigError, match="given and searched"):
        tune("mdd", *data, {"width": [4, 8]}, out=tmp_path / "x", params=PARAMS, **QUICK)
    with pytest.raises(ConfigError, match="at least 1"):
        tune("mdd", *data, {"width": [4, 8]}, out=tmp_path / "x", trials=0, **QUICK)
    assert not (tmp_path / "x").exists()
    import robustda

    with pytest.raises(RunError, match="is a study, not a run"):
        robustda.report(study.folder)


@needs_optuna
def test_a_study_and_a_run_do_not_share_a_folder(study: Any, data: tuple[Domain, Domain], tmp_path: Path) -> None:
    before = (study.folder / "config.json").read_bytes()
    with pytest.raises(RunError, match="holds a study: choose another --out"):
        create_method("mdd", **PARAMS).fit(*data, out=study.folder, **QUICK)
    with pytest.raises(RunError, match="holds a study: choose another --out"):
        fit_auto(*data, out=study.folder, **QUICK)
    assert (study.folder / "config.json").read_bytes() == before
    create_method("mdd", **PARAMS).fit(*data, out=tmp_path / "run", **QUICK)
    with pytest.raises(RunError, match="holds a run: choose another --out"):
        tune("mdd", *data, {"beta": [0.05, 0.2]}, out=tmp_path / "run", params=PARAMS, **QUICK)
    assert not (tmp_path / "run" / "study.db").exists()


@needs_optuna
def test_a_study_that_cannot_be_opened_is_one_line(data: tuple[Domain, Domain], tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"hello" * 99)
    with pytest.raises(RunError, match=r"cannot be opened .*file is not a database.*: choose another --out") as error:
        tune("mdd", *data, {"beta": [0.05, 0.2]}, out=tmp_path, params=PARAMS, **QUICK)
    assert "\n" not in str(error.value)


@needs_optuna
def test_a_preset_can_be_searched(data: tuple[Domain, Domain], tmp_path: Path) -> None:
    for domain, name in zip(data, ("source", "target"), strict=True):
        domain.save_npz(tmp_path / f"{name}.npz")
    arguments = ["tune", "--source", str(tmp_path / "source.npz"), "--target", str(tmp_path / "target.npz")]
    arguments += ["--search=variant=authors,paper", "--steps=10", "--epochs=1", "--width=4", "--noise_rate=0.4"]
    assert main([*arguments, "--out", str(tmp_path / "s"), "--device=cpu", "--tensorboard=false"]) == 0
    rules = [
        json.loads((tmp_path / "s" / "trials" / name / "config.json").read_text())["params"]["keep_rule"]
        for name in ("000", "001")
    ]
    assert rules == ["authors", "paper"]
