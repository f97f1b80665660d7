"""Hard classes are not taken for wrong labels: labels are read cautiously where unseen ones are better met so."""

from __future__ import annotations

import os

import numpy as np
import pytest

from robustda import Domain
from robustda.data.catalog import office31_features
from robustda.noise import corrupt_labels, transition_matrix
from robustda.noise import witnesses as room
from robustda.noise.evidence import LabelEvidence, label_evidence
from robustda.noise.likelihood import evenly, explain, symmetric
from robustda.noise.structure import find_structure
from robustda.noise.transition import noise_of
from robustda.noise.witnesses import describe, nearest
from robustda.report.findings import audit

needs_data = pytest.mark.skipif(
    not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with Office-31 and its draws"
)


def of_many_kinds(kinds: int, each: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Twenty classes of so many kinds of things each, which have nothing in common but their class."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(20 * kinds, 32))
    kind = np.repeat(np.arange(20 * kinds), each)
    x = centres[kind] + rng.normal(size=(len(kind), 32))
    return x.astype(np.float32), kind % 20


def wrong_by(true: np.ndarray, rate: float) -> np.ndarray:
    return corrupt_labels(true, transition_matrix("symmetric", 20, rate), 1)


def judged(monkeypatch: pytest.MonkeyPatch, x: np.ndarray, labels: np.ndarray, *, bold: bool) -> LabelEvidence:
    with monkeypatch.context() as patch:
        if bold:
            patch.setattr(room, "_CLEARLY", np.inf)
        return label_evidence(x, labels, 20)


@pytest.mark.parametrize("seed", range(3))
def test_classes_of_many_kinds_do_not_make_right_labels_wrong(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, true = of_many_kinds(20, 2, seed)
    found, bold = (judged(monkeypatch, x, true, bold=bold) for bold in (False, True))
    assert found.cautious
    assert not bold.cautious
    assert found.rate < 0.02
    assert noise_of(found, resamples=2).combined.overall < 0.1
    assert noise_of(bold, resamples=2).combined.overall > 0.25, "or this data set shows nothing"


def test_wrong_labels_among_them_are_counted_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    x, true = of_many_kinds(20, 2)
    labels = wrong_by(true, 0.2)
    found, bold = (judged(monkeypatch, x, labels, bold=bold) for bold in (False, True))
    assert found.cautious
    said = noise_of(found, resamples=2)
    assert said.combined.overall == pytest.approx((labels != true).mean(), abs=0.1)
    assert noise_of(bold, resamples=2).combined.overall > 0.5
    assert said.disagreement == 0, "the confident joint takes no part"
    assert said.combined.interval[0] <= said.combined.overall <= said.combined.interval[1]


@pytest.mark.parametrize(("n_classes", "each", "groups", "apart"), [(120, 40, 12, 0.2), (60, 30, 30, 0.15)])
def test_classes_like_a_few_others_do_not_make_a_rule(n_classes: int, each: int, groups: int, apart: float) -> None:
    # Groups of ten classes that lie close together, and pairs that are hardly to be told apart; every label is right.
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(groups, 32))[np.arange(n_classes) % groups] + apart * rng.normal(size=(n_classes, 32))
    true = np.repeat(np.arange(n_classes), each)
    x = describe(centres[true] + rng.normal(size=(len(true), 32)))
    near, similarity = nearest(x, 30, rng)
    given = np.eye(n_classes, dtype=np.float32)[true]
    scores = room._leaving_one_out(x, given, np.ones(len(x), dtype=bool), near, similarity, 3.0)
    sureness = room._sureness(similarity)
    plain = explain([score * sureness for score in scores], true)
    assert find_structure(scores, sureness, true, plain), "or this shows nothing"
    found = label_evidence(x, true, n_classes)
    assert not found.by_rule
    assert found.rate < 0.02


@pytest.mark.parametrize("rate", [0.2, 0.4, 0.6])
def test_noise_that_is_seen_clearly_is_read_as_before(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x, true = of_many_kinds(2, 20)
    labels = wrong_by(true, rate)
    found, bold = (judged(monkeypatch, x, labels, bold=bold) for bold in (False, True))
    assert not found.cautious
    np.testing.assert_array_equal(found.wrong, bold.wrong)


def test_the_cautious_model_has_one_rate() -> None:
    _, true = of_many_kinds(2, 20)
    labels = wrong_by(true, 0.3)
    scores = [np.eye(20, dtype=np.float32)[true] + 0.2 * np.random.default_rng(0).normal(size=(len(true), 20))]
    fitted = explain(scores, labels, cautious=True)
    rate = 1 - fitted.transition[0, 0]
    np.testing.assert_allclose(fitted.transition, symmetric(rate, 20))
    assert rate == pytest.approx((labels != true).mean(), abs=0.02)
    joint = np.array([[6.0, 2.0], [1.0, 1.0]])
    np.testing.assert_allclose(evenly(joint), [[0.7, 0.3], [0.3, 0.7]])


def test_the_audit_says_that_it_was_cautious() -> None:
    x, true = of_many_kinds(20, 2)
    # As features, not as rows of a table: those have up to a hundred columns.
    wide = np.concatenate([x, np.zeros((len(x), 100), dtype=np.float32)], axis=1)
    said = " ".join(audit(Domain.from_arrays(wide, true)).headline)
    assert "benefit of the doubt" in said
    x, true = of_many_kinds(2, 20)
    wide = np.concatenate([x, np.zeros((len(x), 100), dtype=np.float32)], axis=1)
    found = audit(Domain.from_arrays(wide, wrong_by(true, 0.3)))
    assert "benefit of the doubt" not in " ".join(found.headline)


@needs_data
def test_office31_as_it_comes_has_hardly_a_wrong_label_and_noise_is_seen_as_before() -> None:
    amazon = office31_features(None, "amazon")
    assert amazon.y is not None
    found = label_evidence(amazon.x, amazon.y, 31)
    assert found.cautious
    assert found.issues.mean() < 0.01  # read boldly it is three in a hundred
    labels = corrupt_labels(amazon.y, transition_matrix("symmetric", 31, 0.4), 1)
    assert not label_evidence(amazon.x, labels, 31).cautious
