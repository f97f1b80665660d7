"""Trackers: the same curves everywhere, a resumed run goes on in the same run, a failing tracker costs a warning."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import robustda.tracking
from conftest import command, environment, make_pair
from robustda.cli import main
from robustda.data.domain import Domain
from robustda.errors import ConfigError, RobustDAWarning
from robustda.methods import create_method
from robustda.tracking import About, TensorBoard, Tracking, tracker_names

QUICK: dict[str, Any] = {"device": "cpu", "progress": False, "log_every": 5, "eval_every": 20}
SETTINGS: dict[str, Any] = {"width": 8, "batch_size": 16, "steps": 60}
SERVERLESS = {
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "GIT_PYTHON_REFRESH": "quiet",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
}


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


@pytest.fixture(autouse=True)
def serverless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in SERVERLESS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'mlruns'}")


@pytest.fixture
def data(tmp_path: Path) -> tuple[Domain, Domain]:
    return make_pair(size=80, target_size=60)[:2]


class Interrupted(Exception):
    """Stands for whatever ends a run."""


def interrupt(data: tuple[Domain, Domain], out: Path, track: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit until after step 40, with a checkpoint at 25: what comes between must not be told twice."""
    from robustda.loop import Run

    plain_add, plain_save = Tracking.add, Run._save

    def add(self: Tracking, phase: str, step: int, values: dict[str, float]) -> None:
        plain_add(self, phase, step, values)
        if (phase, step) == ("adapt", 40):
            raise Interrupted

    def save(self: Any, number: int, step: int, tensors: Any) -> None:
        if (number, step) in ((0, 25), (1, 25)):
            plain_save(self, number, step, tensors)

    with monkeypatch.context() as patch:
        patch.setattr(Tracking, "add", add)
        patch.setattr(Run, "_save", save)
        with pytest.raises(Interrupted):
            fit(data, out, track)


def fit(data: tuple[Domain, Domain], out: Path, track: str) -> Any:
    method = create_method("rda", epochs=6, noise_rate=0.4, **SETTINGS)
    return method.fit(*data, out=out, track=track, checkpoint_seconds=0, **QUICK)


def logged(out: Path) -> Counter[tuple[str, int, float]]:
    """What metrics.csv says: what every tracker should say, once."""
    table = pd.read_csv(out / "metrics.csv")
    names = table["phase"] + "/" + table["metric"]
    return Counter(zip(names, table["step"].tolist(), table["value"].astype("float32").tolist(), strict=True))


def in_tensorboard(out: Path) -> Counter[tuple[str, int, float]]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found: Counter[tuple[str, int, float]] = Counter()
    for path in sorted((out / "tensorboard").iterdir()):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                found[(value.tag, event.step, value.tensor.float_val[0])] += 1
    return found


def test_tensorboard_has_the_log_and_a_resumed_run_repeats_nothing(data, tmp_path, monkeypatch) -> None:
    interrupt(data, tmp_path / "run", "tensorboard", monkeypatch)
    fit(data, tmp_path / "run", "tensorboard")
    assert in_tensorboard(tmp_path / "run") == logged(tmp_path / "run")
    assert not (tmp_path / "run" / "tracking.json").exists()


def in_mlflow() -> dict[str, Counter[tuple[str, int, float]]]:
    """What each run of the experiment holds."""
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("robustda")
    assert experiment is not None
    found = {}
    for run in client.search_runs([experiment.experiment_id]):
        assert run.info.status == "FINISHED"
        points = [
            (key, point.step, float(np.float32(point.value)))
            for key in run.data.metrics
            if not key.startswith("final/")
            for point in client.get_metric_history(run.info.run_id, key)
        ]
        found[run.info.run_id] = Counter(points)
    return found


@needs("mlflow")
def test_mlflow_goes_on_in_the_same_run(data, tmp_path, monkeypatch) -> None:
    out = tmp_path / "run"
    interrupt(data, out, "mlflow", monkeypatch)
    begun = json.loads((out / "tracking.json").read_text())["mlflow"]
    method = fit(data, out, "mlflow")
    note = json.loads((out / "tracking.json").read_text())["mlflow"]
    assert note["id"] == begun["id"]
    assert note["rows"] == len(method.history_) > begun["rows"]
    assert in_mlflow() == {note["id"]: logged(out)}

    from mlflow import MlflowClient

    held = MlflowClient().get_run(note["id"]).data
    assert held.params["method"] == "rda"
    assert held.params["steps"] == "60"
    assert held.metrics["final/target_accuracy"] == pytest.approx(method.summary_["target_accuracy"])


@needs("mlflow")
@pytest.mark.slow
def test_mlflow_with_a_database(data, tmp_path, monkeypatch) -> None:
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    create_method("mdd", **SETTINGS).fit(*data, out=tmp_path / "run", track="mlflow", **QUICK)
    assert list(in_mlflow().values()) == [logged(tmp_path / "run")]


def records(content: bytes) -> Iterator[bytes]:
    """The records of a W&B file: LevelDB's log format, blocks of 32 KiB, after seven bytes of its own."""
    at, parts = 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts = (parts if kind in (3, 4) else b"") + content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4) and at <= len(content):
            yield parts


def in_wandb(out: Path) -> dict[str, list[dict[str, Any]]]:
    """The history of each run id, from the offline files, in the order in which they were written."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((out / "wandb").glob("offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime):
        identity = ""
        for content in records(path.read_bytes()):
            record = Record()
            record.ParseFromString(content)
            if record.HasField("run"):
                identity = record.run.run_id
            if record.HasField("history"):
                line = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
                }
                found.setdefault(identity, []).append({**line, "_step": record.history.step.num})
    return found


@needs("wandb")
@pytest.mark.slow
def test_wandb_goes_on_in_the_same_run(data, tmp_path, monkeypatch) -> None:
    out = tmp_path / "run"
    interrupt(data, out, "wandb", monkeypatch)
    fit(data, out, "wandb")
    expected = logged(out)
    last = len({(key.partition("/")[0], step) for key, step, _ in expected})
    # W&B's own process writes the file, and may still be at it when the run has ended.
    until = time.monotonic() + 30
    while sum(map(len, in_wandb(out).values())) < last and time.monotonic() < until:
        time.sleep(0.1)
    ((identity, history),) = in_wandb(out).items()
    assert identity == json.loads((out / "tracking.json").read_text())["wandb"]["id"]
    steps = [line["_step"] for line in history]
    assert steps == sorted(set(steps))
    told = Counter(
        (key, line[f"{key.partition('/')[0]}/step"], float(np.float32(value)))
        for line in history
        for key, value in line.items()
        if "/" in key and not key.endswith("/step")
    )
    assert told == expected


@needs("mlflow")
@needs("wandb")
@pytest.mark.slow
def test_several_from_the_command_line_and_a_run_that_was_killed(data, tmp_path, capsys) -> None:
    for domain, name in zip(data, ("source", "target"), strict=True):
        domain.save_npz(tmp_path / f"{name}.npz")
    arguments = ["fit", "--method=mdd", "--source=source.npz", "--target=target.npz", "--out=run", "--device=cpu"]
    arguments += ["--steps=1500", "--width=8", "--log_every=20", "--checkpoint_seconds=0"]
    arguments += ["--track=tensorboard,mlflow,wandb"]
    # A process of its own, not one that this one's W&B service takes for its child.
    own = {key: value for key, value in environment().items() if key != "WANDB_SERVICE"}
    metrics = tmp_path / "run" / "metrics.csv"
    with subprocess.Popen(command(*arguments), env=own, cwd=tmp_path) as process:
        while process.poll() is None:
            if metrics.exists() and metrics.read_text().count("\n") > 600:
                process.kill()
            time.sleep(0.01)
    assert process.returncode != 0
    again = subprocess.run(command(*arguments), env=own, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert again.stderr == ""
    out, expected = tmp_path / "run", logged(tmp_path / "run")
    assert in_tensorboard(out) == expected
    (held,) = in_mlflow().values()
    assert max(held.values()) == 1
    # The entry that was being sent when it was killed may be missing; none is there twice.
    assert sum(expected.values()) - sum(held.values()) <= 12
    (history,) = in_wandb(out).values()
    steps = [line["_step"] for line in history]
    assert len(set(steps)) == len(steps)


@needs("mlflow")
def test_a_server_that_is_down_is_one_warning(data, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.warns(RobustDAWarning, match="mlflow failed") as caught:
        create_method("mdd", **SETTINGS).fit(*data, out=tmp_path / "run", track="mlflow", **QUICK)
    assert len([entry for entry in caught if issubclass(entry.category, RobustDAWarning)]) == 1
    assert (tmp_path / "run" / "done").exists()


# Without the packages.


class Recorder:
    """A tracker that keeps what it is told, and fails when it is told to."""

    keeps = True

    def __init__(self, fails_at: int = -1) -> None:
        self.told: list[tuple[str, int, int]] = []
        self.started: list[str | None] = []
        self.ended: list[Any] = []
        self.fails_at = fails_at

    def start(self, about: About, identity: str | None) -> str:
        self.started.append(identity)
        return identity or "first"

    def log(self, phase: str, step: int, at: int, values: dict[str, float]) -> None:
        if len(self.told) == self.fails_at:
            raise ConnectionError("the server is down\nand more")
        self.told.append((phase, step, at))

    def finish(self, summary: Any) -> None:
        self.ended.append(summary)


def with_recorder(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> Recorder:
    monkeypatch.setitem(robustda.tracking.TRACKERS, "mlflow", (lambda: recorder, "json"))
    return recorder


def test_a_failing_tracker_is_one_warning_and_is_told_the_rest_later(data, tmp_path, monkeypatch) -> None:
    failing = with_recorder(monkeypatch, Recorder(fails_at=3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        interrupt(data, tmp_path / "run", "mlflow", monkeypatch)
    (warning,) = [entry for entry in caught if issubclass(entry.category, RobustDAWarning)]
    assert "the server is down and more" in str(warning.message)
    assert len(failing.told) == 3
    again = with_recorder(monkeypatch, Recorder())
    fit(data, tmp_path / "run", "mlflow")
    assert again.started == ["first"]
    steps = pd.read_csv(tmp_path / "run" / "metrics.csv")[["phase", "step"]].drop_duplicates()
    both = [entry[:2] for entry in failing.told + again.told]
    assert both == list(steps.itertuples(index=False, name=None))
    ats = [at for _, _, at in failing.told + again.told]
    assert ats == sorted(set(ats))
    assert again.ended[0]["method"] == "rda"


def test_a_tracker_that_does_not_start_does_not_stop_the_run(data, monkeypatch) -> None:
    class Down(Recorder):
        def start(self, about: About, identity: str | None) -> str:
            raise OSError("no route")

    down = with_recorder(monkeypatch, Down())
    with pytest.warns(RobustDAWarning, match="no route") as caught:
        method = create_method("mdd", **SETTINGS).fit(*data, track="mlflow", **QUICK)
    assert len(caught) == 1
    assert method.summary_["target_accuracy"] is not None
    assert (down.told, down.ended) == ([], [])


def test_what_ends_a_run_ends_its_trackers(data, tmp_path, monkeypatch) -> None:
    recorder = with_recorder(monkeypatch, Recorder())
    interrupt(data, tmp_path / "run", "mlflow", monkeypatch)
    assert recorder.ended == [None]


def test_names() -> None:
    assert tracker_names(["tensorboard"]) == ["tensorboard"]
    assert tracker_names("[tensorboard, tensorboard]") == ["tensorboard"]
    assert tracker_names("") == []
    with pytest.raises(ConfigError, match="no tracker 'tensorbord'"):
        tracker_names("tensorbord")
    with pytest.raises(ConfigError, match="give none alone"):
        tracker_names("none,tensorboard")


def test_a_missing_extra_is_one_line(monkeypatch, capsys, data, tmp_path) -> None:
    monkeypatch.setitem(robustda.tracking.TRACKERS, "wandb", (TensorBoard, "no_such_package_here"))
    for domain, name in zip(data, ("source", "target"), strict=True):
        domain.save_npz(tmp_path / f"{name}.npz")
    arguments = ["--source=source.npz", "--target=target.npz", "--out=run", "--track=wandb"]
    assert main(["fit", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'robustda[wandb]'" in line
    assert not (tmp_path / "run").exists()


def test_none_and_the_old_switch(data, tmp_path) -> None:
    for number, how in enumerate(({"track": "none"}, {"tensorboard": False})):
        create_method("mdd", **SETTINGS).fit(*data, out=tmp_path / str(number), **how, **QUICK)
        assert not (tmp_path / str(number) / "tensorboard").exists()
    shutil.rmtree(tmp_path / "0")
