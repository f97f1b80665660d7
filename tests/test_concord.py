"""Concord's parts against brute force, and the whole against its own ablation."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import eigh

from robustda import Concord
from robustda.bench.data import noisy_domain, target_domain
from robustda.methods.concord import agreement, member_rows, principal, subspace, surest
from test_every_method import QUIET, blobs


def examples(seed: int = 0, count: int = 60, width: int = 8, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.eye(classes)[rng.integers(classes, size=count)]
    labels[::5] = 0  # some have none
    return rng.normal(size=(count, width)) + labels @ rng.normal(size=(classes, width)), labels


@pytest.mark.parametrize("seed", range(3))
def test_the_subspace_solves_its_equation(seed: int) -> None:
    x, labels = examples(seed)
    w = labels @ labels.T
    d = np.diag(w.sum(axis=1))
    values, vectors = eigh(x.T @ d @ x, x.T @ (d - w) @ x + 0.7 * np.eye(x.shape[1]))
    found = subspace(torch.from_numpy(x), torch.from_numpy(labels), 0.7, 3).numpy()
    for place in range(3):
        own, expected = found[:, place], vectors[:, -1 - place]
        cosine = own @ expected / np.linalg.norm(own) / np.linalg.norm(expected)
        assert abs(cosine) == pytest.approx(1, abs=1e-6)
    assert values[-1] > values[-2]


def test_principal_components() -> None:
    x = examples()[0]
    x = x - x.mean(axis=0)
    _, _, rows = np.linalg.svd(x, full_matrices=False)
    found = principal(torch.from_numpy(x.T @ x), 3).numpy()
    np.testing.assert_allclose(np.abs(rows[:3] @ found), np.eye(3), atol=1e-8)


def test_the_surest_of_every_class() -> None:
    scores = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2], [0.3, 0.7], [0.7, 0.3]])
    assert surest(scores, 0.5).tolist() == [[1, 0], [0, 0], [1, 0], [0, 1], [0, 0]]
    assert surest(scores, 1.0).sum(dim=1).tolist() == [1, 1, 1, 1, 1]


def test_the_surer_opinion_decides() -> None:
    z = torch.tensor([[1.0, 0.0]])
    sure, unsure = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.1, 1.0]])
    assert agreement(z, sure, unsure).argmax().item() == agreement(z, unsure, sure).argmax().item() == 0


def test_a_member_has_its_share_of_the_rows_and_every_class() -> None:
    labels = torch.zeros(4000, 3, dtype=torch.float64)
    labels[:2000, 0] = 1
    labels[2000:3999, 1] = 1
    labels[3999, 2] = 1
    for seed in range(5):
        rows = member_rows(labels, 0.3, torch.Generator().manual_seed(seed))
        assert float(rows.double().mean()) == pytest.approx(0.3, abs=0.05)
        assert rows[3999]
    assert member_rows(labels, 1.0, torch.Generator().manual_seed(0)).all()


def test_predictions_are_the_mean_over_the_members() -> None:
    source, target = blobs(n=200, target=150, classes=4, noise=0.3)
    model = Concord(members=3, components=5, dimensions=4, backbone="identity").fit(source, target, **QUIET)
    project, agree = model.network_.bottleneck[0], model.network_.f[0]
    x = torch.nn.functional.normalize(torch.from_numpy(np.asarray(target.x)))
    x = torch.nn.functional.normalize((x - project.mean) @ project.components)
    total = torch.zeros(len(x), 4)
    for member in range(3):
        z = torch.nn.functional.normalize(x @ project.basis[member] - project.shift[member])
        scores = agreement(z, agree.prototypes[member], agree.centres[member])
        total += scores / scores.sum(dim=1, keepdim=True) / 3
    expected = torch.softmax(model.sharpness * total.log(), dim=1)
    np.testing.assert_allclose(model.predict_proba(target), expected.numpy(), atol=1e-5)


def test_members_differ_and_one_alone_learns_from_all() -> None:
    source, target = blobs(n=200, target=150, classes=4, noise=0.3)
    several = Concord(members=2).fit(source, target, **QUIET).network_.f[0].prototypes
    assert not torch.equal(several[0], several[1])
    alone = [Concord(members=1, member_share=share).fit(source, target, **QUIET) for share in (0.3, 0.8)]
    np.testing.assert_array_equal(*(model.predict_proba(target) for model in alone))


def test_it_finds_the_wrong_labels_and_gains_by_it() -> None:
    source, target = blobs(n=400, target=300, classes=6, noise=0.4)
    model = Concord(backbone="identity").fit(source, target, **QUIET)
    plain = Concord(backbone="identity", clean=False).fit(source, target, **QUIET)
    assert model.summary_["target_accuracy"] >= plain.summary_["target_accuracy"]
    assert model.noise_rate_ == pytest.approx(0.33, abs=0.08)  # a sixth of the redrawn labels are right by chance
    assert not hasattr(plain, "trust_")


@pytest.mark.skipif(not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with Office-31")
def test_office31_under_label_noise(tmp_path: Path) -> None:
    """Prototypes reach .942 on these two tasks on average."""
    root, scores = Path(os.environ["ROBUSTDA_DATA"]), []
    for source, name in (("dslr", "webcam"), ("webcam", "dslr")):
        noisy = noisy_domain(root, "features", source, "label", 0.4, "authors", tmp_path)
        scores.append(Concord().fit(noisy, target_domain(root, "features", name), **QUIET).summary_["target_accuracy"])
    assert np.mean(scores) > 0.942
