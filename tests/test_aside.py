"""What is done in a thread of its own comes to the same, and what goes wrong there is said to whoever asks."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import robustda.methods.rda
import robustda.noise.estimate
from conftest import make_pair
from robustda.aside import Aside, leaves_time
from robustda.errors import DataError
from robustda.methods import RDA
from robustda.tracking import About, TensorBoard


def test_it_is_done_elsewhere_and_its_outcome_kept() -> None:
    go_on = threading.Event()
    aside = Aside(lambda: (go_on.wait(10), threading.current_thread().name))
    assert not aside.done
    go_on.set()
    assert aside.result() == aside.result() == (True, "robustda-aside")
    assert aside.done


def test_what_goes_wrong_is_raised_where_it_is_asked_for() -> None:
    def fails() -> None:
        raise DataError("no labels: give some")

    aside = Aside(fails)
    for _ in range(2):
        with pytest.raises(DataError, match="give some"):
            aside.result()


def test_a_processor_has_no_time_to_spare_while_it_trains() -> None:
    assert not leaves_time(torch.device("cpu"))
    assert leaves_time(torch.device("cuda"))


def test_rates_that_are_estimated_while_a_device_trains_make_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, _ = make_pair(size=120, target_size=60)
    threads: list[str] = []
    estimate = robustda.noise.estimate.estimate_rates

    def watched(*given: object, **options: object) -> object:
        threads.append(threading.current_thread().name)
        return estimate(*given, **options)

    monkeypatch.setattr(robustda.noise.estimate, "estimate_rates", watched)
    said = []
    for spare in (False, True):
        monkeypatch.setattr(robustda.methods.rda, "leaves_time", lambda device, spare=spare: spare)
        method = RDA(width=8, steps=20, epochs=2, batch_size=16)
        method.fit(source, target, device="cpu", progress=False, tensorboard=False)
        said.append((method.trust_, method.summary_["class_noise_rates"], method.predict_proba(target)))
    assert threads == ["MainThread", "robustda-aside"]
    for before, after in zip(*said, strict=True):
        np.testing.assert_array_equal(before, after)


def test_rates_that_are_given_are_not_estimated_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target, _ = make_pair(size=80, target_size=60)
    monkeypatch.setattr(robustda.methods.rda, "leaves_time", lambda device: True)
    monkeypatch.setattr(robustda.methods.rda, "Aside", None)
    method = RDA(width=8, steps=5, epochs=1, batch_size=16, noise_rate=0.2)
    method.fit(source, target, device="cpu", progress=False, tensorboard=False)
    assert method.noise_rate_ == pytest.approx(0.2)


def test_curves_wait_for_tensorboard_and_none_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    opened = threading.Event()
    really = TensorBoard._open

    def slowly(board: TensorBoard) -> object:
        opened.wait(10)
        return really(board)

    monkeypatch.setattr(TensorBoard, "_open", slowly)
    board = TensorBoard()
    board.start(About("run", {}, tmp_path), None)
    for step in (1, 2):
        board.log("adapt", step, step, {"loss": 1 / step})
    assert not list(tmp_path.iterdir())  # nobody waited for it
    opened.set()
    board.finish(None)
    (file,) = (tmp_path / "tensorboard").iterdir()
    found = [value for event in EventFileLoader(str(file)).Load() for value in event.summary.value]
    assert [(value.tag, value.tensor.float_val[0]) for value in found] == [("adapt/loss", 1.0), ("adapt/loss", 0.5)]
