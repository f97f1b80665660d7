"""Prototypes against the plain algorithm in NumPy, and against what it scores on Office-31."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

from robustda.data.domain import Domain
from robustda.methods import Prototypes, prototypes
from robustda.methods.prototypes import class_means

QUIET: dict[str, Any] = {"device": "cpu", "progress": False, "tensorboard": False}


def test_class_means_by_hand() -> None:
    x = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    found = class_means(x, torch.tensor([0, 0, 2]), torch.tensor([[9.0, 9.0], [5.0, 6.0], [9.0, 9.0]]))
    assert found.tolist() == [[1, 0], [5, 6], [0, 1]]


def test_prototypes_are_the_plain_algorithm() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    centres = rng.normal(size=(3, 8)) * 2
    x = (centres[labels] + rng.normal(size=(90, 8))).astype(np.float32)
    y = (centres[labels] + rng.normal(size=(90, 8)) + 3).astype(np.float32)
    method = Prototypes(rounds=4, backbone="identity").fit(
        Domain.from_arrays(x, labels), Domain.from_arrays(y), **QUIET
    )

    def unit(a: np.ndarray) -> np.ndarray:
        result: np.ndarray = a / np.linalg.norm(a, axis=1, keepdims=True)
        return result

    source, target = unit(x), unit(y)
    source, target = unit(source - source.mean(axis=0)), unit(target - target.mean(axis=0))
    means = unit(np.stack([source[labels == k].mean(axis=0) for k in range(3)]))
    for _ in range(4):
        nearest = (target @ means.T).argmax(axis=1)
        means = unit(np.stack([target[nearest == k].mean(axis=0) for k in range(3)]))
    assert method.predict(y).tolist() == (target @ means.T).argmax(axis=1).tolist()
    logits = 20 * target @ means.T
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(method.predict_proba(y), shares, atol=1e-4)
    assert len(method.history_) == 0  # not one training step


@pytest.mark.parametrize("backbone", ["identity", "table"])
def test_looking_at_a_part_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch, backbone: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 8)).astype(np.float32), rng.normal(size=(50, 8)).astype(np.float32)
    domains = Domain.from_arrays(x, np.arange(90) % 3), Domain.from_arrays(y)
    whole = Prototypes(backbone=backbone).fit(*domains, **QUIET).predict_proba(y)
    monkeypatch.setattr(prototypes, "_PART", 17)
    parts = Prototypes(backbone=backbone).fit(*domains, **QUIET).predict_proba(y)
    np.testing.assert_allclose(parts, whole, atol=1e-4)


@pytest.mark.skipif(not os.environ.get("ROBUSTDA_DATA"), reason="needs the Office-31 features in ROBUSTDA_DATA")
def test_office31() -> None:
    """40 % label noise, the authors' draws: 84.6 on average over the six tasks, without a training step."""
    from robustda.data.catalog import office31_draw, office31_features, tasks

    root, scores = os.environ["ROBUSTDA_DATA"], []
    for source_name, target_name in tasks("Office-31"):
        source = office31_draw(root, source_name, "label", 0.4).apply(office31_features(root, source_name))
        method = Prototypes().fit(source, office31_features(root, target_name), **QUIET)
        scores.append(100 * method.summary_["target_accuracy"])
    assert np.mean(scores) == pytest.approx(84.6, abs=0.15)
