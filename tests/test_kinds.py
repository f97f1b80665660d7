"""Few classes of unequal sizes are divided into kinds, which are learned; what is said of a class's kinds is summed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import robustda
from robustda import Clarity, Domain
from robustda.engine import Stepper
from robustda.errors import RobustDAError
from robustda.export import export_run
from robustda.exported import load_export
from robustda.methods.kinds import MOST, find_kinds
from robustda.methods.opinions import TwoOpinions
from robustda.nets import Identity
from robustda.noise.recipes import corrupt_labels, transition_matrix
from test_every_method import QUIET

FEW = {"heads": 2, "head_steps": 60, "width": 64}


def parts(size: int, seed: int, shift: float = 0.0, wrong: float = 0.0) -> Domain:
    """Things of twelve kinds, of which one is damaged."""
    centres = np.random.default_rng(0).normal(size=(12, 128))
    rng = np.random.default_rng(seed)
    kind = np.arange(size) % 12
    x = centres[kind] + 2 * rng.normal(size=(size, 128)) + shift * np.random.default_rng(9).normal(size=128)
    codes = corrupt_labels((kind == 0).astype(np.int64), transition_matrix("symmetric", 2, wrong), seed)
    return Domain.from_arrays(x.astype(np.float32), np.array(["sound", "damaged"])[codes])


@pytest.mark.parametrize("wrong", [0.0, 0.15])
def test_a_rare_class_is_not_found_everywhere(wrong: float, tmp_path: Path) -> None:
    source, target = parts(720, 0, wrong=wrong), parts(480, 1, shift=0.7)
    plain = Clarity(kinds="none", **FEW)
    with pytest.warns(robustda.RobustDAWarning, match="are taken for 'damaged'"):
        plain.fit(source, target, **QUIET)
    model = Clarity(**FEW).fit(source, target, out=tmp_path / "run", **QUIET)
    truth = target.labels == "damaged"
    found, before = (one.predict(target) == "damaged" for one in (model, plain))
    assert (found == truth).mean() > 0.93 > (before == truth).mean() + 0.08
    assert found[truth].mean() > 0.7
    expected = model.summary_["expected_accuracy"]
    assert expected["value"] == pytest.approx((found == truth).mean(), abs=0.07)
    probabilities = model.predict_proba(target)
    assert probabilities.shape == (480, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    again = robustda.load(tmp_path / "run")
    np.testing.assert_allclose(again.predict_proba(target), probabilities, atol=1e-6)


def test_a_run_with_kinds_goes_on_as_if_it_had_never_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source, target = parts(360, 0, wrong=0.1), parts(240, 1, shift=0.3)
    how = QUIET | {"log_every": 5, "checkpoint_seconds": 0}
    whole = Clarity(**FEW).fit(source, target, **how).network_.state_dict()
    plain = Stepper.__call__

    def failing(self: Stepper, step: int) -> None:
        if step == 33:
            raise RuntimeError("a crash")
        plain(self, step)

    monkeypatch.setattr(Stepper, "__call__", failing)
    with pytest.raises(RuntimeError, match="a crash"):
        Clarity(**FEW).fit(source, target, out=tmp_path / "run", **how)
    monkeypatch.undo()
    resumed = Clarity(**FEW).fit(source, target, out=tmp_path / "run", **how).network_.state_dict()
    assert "whose" in whole
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())


def test_a_rare_class_of_a_table_is_not_found_everywhere() -> None:
    def rows(size: int, seed: int, drift: float) -> Domain:
        centres = 1.3 * np.random.default_rng(0).normal(size=(12, 10))
        rng = np.random.default_rng(seed)
        kind = np.arange(size) % 12
        x = np.linspace(1, 50, 10) * (centres[kind] + rng.normal(size=(size, 10)) + drift)
        return Domain.from_arrays(x.astype(np.float32), np.where(kind == 0, "yes", "no"))

    source, target = rows(720, 0, 0.0), rows(480, 1, 0.5)
    model = Clarity(**FEW).fit(source, target, **QUIET)
    assert "whose" in model.network_.state_dict()
    assert (model.predict(target) == target.labels).mean() > 0.93


@pytest.mark.parametrize("format", ["safetensors", "torch-export"])
def test_kinds_are_exported(format: str, tmp_path: Path) -> None:
    model = Clarity(**FEW).fit(parts(240, 0), parts(120, 1), **QUIET)
    export_run(model, format, tmp_path / "export")
    new = parts(30, 2)
    found = load_export(tmp_path / "export", device="cpu").predict_proba(new)
    np.testing.assert_allclose(found, model.predict_proba(new), atol=1e-5)


def test_what_is_said_of_the_kinds_of_a_class_is_summed() -> None:
    network = TwoOpinions(Identity(8), 3, 16, 2).eval()
    whose = torch.tensor([0, 0, 1, 2, 2, 2])
    network.divide(whose, None)
    x = torch.randn(5, 8)
    each = network.first(x).softmax(dim=1)
    together = torch.stack([each[:, whose == k].sum(dim=1) for k in range(3)], dim=1)
    torch.testing.assert_close(network(x).softmax(dim=1), together, atol=1e-5, rtol=1e-4)


@settings(deadline=None, max_examples=30)
@given(counts=st.lists(st.integers(1, 60), min_size=2, max_size=14), seed=st.integers(0, 99))
def test_kinds_are_of_about_one_size_and_stay_in_their_class(counts: list[int], seed: int) -> None:
    codes = np.repeat(np.arange(len(counts)), counts)
    x = np.random.default_rng(seed).normal(size=(len(codes), 16)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    kinds = find_kinds(x, codes, len(counts), seen_as=lambda rows: rows, seed=seed)
    if kinds is None:
        assert len(counts) > 12 or max(counts) < 2 * min(counts) or max(counts) < 1.5 / 24 * sum(counts)
        return
    assert set(kinds.whose.tolist()) == set(range(len(counts)))
    assert len(kinds.whose) <= MOST
    np.testing.assert_array_equal(kinds.whose[kinds.of(codes)], codes)
    assert (kinds.of(np.full(len(codes), -1)) == -1).all()


def test_equal_classes_many_classes_and_a_missing_one_are_left_alone() -> None:
    x = np.eye(64, dtype=np.float32)
    for codes, n_classes in ((np.arange(64) % 2, 2), (np.minimum(np.arange(64), 20), 21), (np.zeros(64, int), 2)):
        assert find_kinds(x, codes, n_classes, seen_as=lambda rows: rows, seed=0) is None


@pytest.mark.parametrize("kinds", [[0, 0, 0], [0, 1, 2], [0.0, 1.0], [[0, 1]], list(range(2)) * 40])
def test_kinds_in_a_file_that_are_of_no_such_classes_are_refused(kinds: list, tmp_path: Path) -> None:
    Clarity(**FEW).fit(parts(240, 0), parts(120, 1), out=tmp_path / "run", **QUIET)
    file = tmp_path / "run" / "model.safetensors"
    save_file(load_file(file) | {"whose": torch.tensor(kinds)}, file)
    with pytest.raises(RobustDAError):
        robustda.load(tmp_path / "run")
