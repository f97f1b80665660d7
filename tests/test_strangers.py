"""Large data: what a sample is believed to be judges the rest, and no large part of the features is read at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from robustda import Domain
from robustda.methods import create_method
from robustda.methods.belief import Belief
from robustda.methods.concord import projection, some_rows
from robustda.noise import strangers
from robustda.noise.evidence import label_evidence
from robustda.noise.strangers import judge_labels
from robustda.noise.vectors import unit
from test_every_method import QUIET, blobs


class Watched:
    """Features that note how many of them were asked for at a time."""

    def __init__(self, x: np.ndarray) -> None:
        self.x, self.most, self.asked = x, 0, np.zeros(len(x), dtype=int)

    def __getitem__(self, rows: object) -> np.ndarray:
        found = self.x[rows]
        self.most = max(self.most, len(found))
        self.asked[rows] += 1
        return found


def examples(count: int, classes: int = 6, width: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors, their classes, and labels of which three in ten are wrong; of the last class there are 40."""
    rng = np.random.default_rng(0)
    true = np.where(np.arange(count) < 40, classes - 1, rng.integers(classes - 1, size=count))
    centres = rng.normal(size=(classes, width)) * 5 / width**0.5
    x = (centres[true] + rng.normal(size=(count, width))).astype(np.float32)
    return x, true, np.where(rng.random(count) < 0.3, rng.integers(classes, size=count), true)


def test_few_are_all_compared() -> None:
    x, _, labels = examples(600)
    found, whole = (
        judge_labels(x, labels, 6, seen_as=unit, seed=2),
        label_evidence(unit(x), labels, 6, together=False, seed=2),
    )
    for name in ("wrong", "suggested", "confidence", "issues"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))


def test_many_are_judged_by_a_sample_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "_BLOCK", 500)
    x, true, labels = examples(6000)
    features, wrong = Watched(x), labels != true
    found = judge_labels(features, labels, 6, seen_as=unit, most=2000)  # type: ignore[arg-type]
    assert features.most <= 2050  # of the last class as many as there are, up to thirty
    assert features.asked.min() >= 1
    whole = label_evidence(unit(x), labels, 6, together=False)
    assert (found.issues == wrong).mean() > (whole.issues == wrong).mean() - 0.01
    assert (found.suggested == true).mean() > (whole.suggested == true).mean() - 0.01
    assert ((found.wrong >= 0) & (found.wrong <= 1) & (found.confidence > 1 / 6)).all()
    assert found.wrong.mean() == pytest.approx(wrong.mean(), abs=0.03)
    rare = true == 5
    assert (found.suggested == 5)[rare].mean() >= (whole.suggested == 5)[rare].mean() - 0.15
    again = judge_labels(x, labels, 6, seen_as=unit, most=2000)
    np.testing.assert_array_equal(found.wrong, again.wrong)


def test_corrupted_examples_are_compared_with_their_own_kind() -> None:
    x, _, labels = examples(900)
    hit = np.arange(900) % 5 == 0
    found = judge_labels(x, labels, 6, seen_as=unit, corrupted=hit, most=300)
    np.testing.assert_array_equal(found.wrong, label_evidence(unit(x), labels, 6, corrupted=hit, together=False).wrong)


@pytest.mark.parametrize("seed", range(4))
def test_a_belief_as_codes_and_as_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given, suggested = torch.from_numpy(rng.integers(5, size=60)), torch.from_numpy(rng.integers(-1, 3, size=60))
    belief = Belief(given, suggested, 5)
    assert belief.lost.tolist() == [False, False, False, True, True]
    rows = belief.rows(torch.arange(60))
    for row, label, class_ in zip(rows, given.tolist(), suggested.tolist(), strict=True):
        expected = {class_} - {-1} | ({label} if label >= 3 else set())
        assert set(row.nonzero()[:, 0].tolist()) == expected
    assert torch.equal(belief.codes, torch.where(rows.sum(dim=1) > 0, rows.argmax(dim=1), -1))
    assert torch.equal(belief.rows(torch.tensor([7, 3])), rows[[7, 3]])


def test_the_main_directions_a_block_at_a_time() -> None:
    rng = np.random.default_rng(0)
    source, target = (torch.from_numpy(unit(rng.normal(size=(count, 30)))) for count in (130, 95))
    whole, parts = (projection(source, target, 9, block) for block in (0, 40))
    for one, other in zip(whole[:2], parts[:2], strict=True):
        torch.testing.assert_close(one @ one.T, other @ other.T)  # a direction may point the other way
    torch.testing.assert_close(whole[2], parts[2])
    torch.testing.assert_close(whole[3] @ whole[3].T, parts[3] @ parts[3].T)


def test_all_rows_of_few_and_some_of_many() -> None:
    few, many = np.arange(9000), np.arange(7, 70_000)
    assert all(found is rows for found, rows in zip(some_rows(few, few, 3), (few, few), strict=True))
    source, target = some_rows(many, few, 3)
    assert (len(source), source[0], source[-1], len(np.unique(source))) == (10_000, 7, 69_999, 10_000)
    np.testing.assert_array_equal(target, few)
    assert len(some_rows(few, many, 250)[1]) == 25_000
    assert len(some_rows(few, many, 1000)[1]) == 30_000


@pytest.mark.parametrize("name", ["clarity", "concord"])
def test_methods_learn_from_a_mapped_file_of_many(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = blobs(n=1500, target=900)
    for domain, file in ((source, "source"), (target, "target")):
        np.save(tmp_path / f"{file}.npy", domain.x)
        np.save(tmp_path / f"{file}_y.npy", domain.labels)
    mapped = [Domain.read(tmp_path / f"{file}.npy") for file in ("source", "target")]
    options = {"width": 32, "head_steps": 100} if name == "clarity" else {}
    whole = create_method(name, **options).fit(source, target, **QUIET)
    monkeypatch.setattr(strangers, "ALL", 500)
    some = create_method(name, **options).fit(*mapped, **QUIET)
    assert some.summary_["target_accuracy"] > whole.summary_["target_accuracy"] - 0.02
    assert (some.trust_ == whole.trust_).mean() > 0.95
    states = (method.network_.state_dict() for method in (some, whole))
    means = [state[key] for state in states for key in state if key.endswith("0.mean")]  # the members'
    assert len(means) == 2
    assert not torch.equal(*means)  # it was a sample indeed
