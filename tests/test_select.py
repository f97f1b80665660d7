"""Criteria that need no target labels: against NumPy, against known cases, and in a run."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robustda import create_method, load
from robustda.data.batches import Inputs
from robustda.methods import method_names
from robustda.methods.task import Task
from robustda.select import (
    Criterion,
    deep_embedded_validation,
    density_ratio,
    information_maximisation,
    nuclear_norm,
    soft_neighbourhood_density,
    validation_score,
)
from test_every_method import QUIET, assert_same, blobs, small


def predictions(seed: int, count: int = 40, classes: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(count, classes, generator=generator, dtype=torch.float64), dim=1)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_the_criteria_agree_with_numpy(seed: int) -> None:
    p = predictions(seed)
    q = p.numpy()
    entropy = lambda x: -(x * np.log(x)).sum(-1)  # noqa: E731
    assert float(information_maximisation(p)) == pytest.approx(entropy(q.mean(0)) - entropy(q).mean())
    assert float(nuclear_norm(p)) == pytest.approx(np.linalg.svd(q, compute_uv=False).sum() / np.sqrt(5 * 40))
    unit = q / np.linalg.norm(q, axis=1, keepdims=True)
    shares = []
    for i in range(len(q)):
        similarity = np.exp((np.delete(unit, i, 0) @ unit[i]) / 0.05)
        share = similarity / similarity.sum()
        shares.append(-(share * np.log(share)).sum())
    assert float(soft_neighbourhood_density(p)) == pytest.approx(np.mean(shares))


def test_sure_and_diverse_predictions_are_liked_best() -> None:
    sure = torch.eye(4).repeat(10, 1)
    collapsed = torch.eye(4)[:1].repeat(40, 1)
    unsure = torch.full((40, 4), 0.25)
    for criterion in (information_maximisation, nuclear_norm):
        assert criterion(sure) > criterion(collapsed)
        assert criterion(sure) > criterion(unsure)
    assert float(nuclear_norm(sure)) == pytest.approx(1)
    assert float(information_maximisation(collapsed)) == pytest.approx(0, abs=1e-6)


def test_importance_weights_move_the_risk_to_the_target() -> None:
    """Losses grow along an axis on which the target lies further on: its risk is estimated, not the source's."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(4000, 3, generator=generator)
    target = torch.randn(4000, 3, generator=generator) + torch.tensor([0.7, 0.0, 0.0])
    ratios = density_ratio(source, target)
    assert float(ratios.mean()) == pytest.approx(1, abs=1e-4)
    losses = source[:, 0] + 3
    assert float(losses.mean()) == pytest.approx(3, abs=0.1)
    assert -float(deep_embedded_validation(losses, ratios)) == pytest.approx(3.7, abs=0.15)
    same = torch.ones(10)
    assert float(deep_embedded_validation(torch.arange(10.0), same)) == -4.5


@pytest.mark.parametrize("criterion", ["im", "snd", "bnm", "dev"])
def test_a_run_keeps_the_network_that_is_liked_best(criterion: str, tmp_path: Path) -> None:
    source, target = blobs()
    how = {**QUIET, "eval_every": 10, "select": criterion}
    method = small("mdd", steps=60).fit(source, target, out=tmp_path / "run", **how)
    history = method.history_[method.history_.metric == f"select_{criterion}"]
    best = int(history.step.iloc[history.value.argmax()])
    assert method.summary_["selected_step"] == best
    accuracy = method.history_[method.history_.metric == "target_accuracy"].set_index("step").value
    assert method.summary_["target_accuracy"] == pytest.approx(accuracy[best])
    loaded = load(tmp_path / "run", device="cpu")
    assert loaded.summary_ == method.summary_
    np.testing.assert_array_equal(loaded.predict_proba(target), method.predict_proba(target))


@pytest.mark.parametrize("name", method_names())
def test_every_criterion_can_be_logged_and_changes_nothing(name: str) -> None:
    source, target = blobs()
    how = {**QUIET, "eval_every": 10}
    quick = small(name, steps=20).fit(source, target, **how)
    judged = small(name, steps=20).fit(source, target, criteria="all", **how)
    assert_same(quick, judged)
    logged = {metric for metric in judged.history_.metric if metric.startswith("select_")}
    without_steps = not any(metric.startswith("select_") for metric in quick.history_.metric)
    assert logged == (set() if without_steps else {f"select_{criterion}" for criterion in get_args(Criterion)})
    assert "select_dev" not in set(quick.history_.metric)


def test_labels_of_the_target_have_no_part_in_the_choice() -> None:
    source, target = blobs()
    how = {**QUIET, "eval_every": 10, "select": "snd"}
    with_labels = small("dann", steps=40).fit(source, target, **how)
    without = small("dann", steps=40).fit(source, target.unlabelled(), **how)
    assert_same(with_labels, without)
    assert with_labels.summary_["selected_step"] == without.summary_["selected_step"]


def test_a_resumed_run_chooses_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from test_every_method import Interrupted, stop_at

    source, target = blobs()
    how = {**QUIET, "eval_every": 10, "log_every": 10, "checkpoint_seconds": 0, "select": "im"}
    whole = small("mdd", steps=60).fit(source, target, **how)
    with monkeypatch.context() as patch:
        stop_at(patch, 0, 45, [])
        with pytest.raises(Interrupted):
            small("mdd", steps=60).fit(source, target, out=tmp_path / "run", **how)
    resumed = small("mdd", steps=60).fit(source, target, out=tmp_path / "run", **how)
    assert_same(whole, resumed)
    assert resumed.summary_["selected_step"] == whole.summary_["selected_step"]


def test_without_selection_the_last_step_counts() -> None:
    source, target = blobs(n=100, target=60)
    assert "selected_step" not in create_method("mdd", width=8, steps=20).fit(source, target, **QUIET).summary_


def test_where_nobody_is_trusted_all_are_asked() -> None:
    source, target = blobs()
    method = small("mdd", steps=5).fit(source, target, **QUIET)
    device = torch.device("cpu")
    labels = torch.from_numpy(np.asarray(source.y))
    task = Task(Inputs(source, device), labels, Inputs(target, device), len(source.classes), device)
    network = method.network_.eval()
    free = validation_score(network, task, 100)
    task.memory["trust"] = torch.zeros(len(labels))
    assert validation_score(network, task, 100) == free
    task.memory["trust"][:30] = 1
    assert validation_score(network, task, 100) != free
