"""The rates that noise_rate="auto" goes by, and the labels it doubts; the confident joint by its definition."""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustda import Domain, audit
from robustda.data.catalog import office31_draw, office31_features
from robustda.errors import DataError, RobustDAWarning
from robustda.noise import corrupt_vectors, transition_matrix
from robustda.noise.confident import confident_classes, confident_joint
from robustda.noise.estimate import estimate_rates
from robustda.noise.evidence import label_evidence
from robustda.noise.witnesses import largest

needs_data = pytest.mark.skipif(
    not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with Office-31 and its draws"
)


@settings(deadline=None, max_examples=150)
@given(m=st.integers(1, 40), n_classes=st.integers(2, 6), seed=st.integers(0, 2**32 - 1))
def test_the_confident_joint_follows_its_definition(m, n_classes, seed) -> None:
    labels, sixteenths = exact_probabilities(m, n_classes, seed)
    joint, classes = plain_confident_joint(labels.tolist(), sixteenths.tolist(), n_classes)
    assert confident_classes(labels, sixteenths / 16).tolist() == classes
    assert confident_joint(labels, sixteenths / 16).tolist() == joint


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("n_classes", [3, 10])
def test_the_rate_of_noise_between_clear_clusters_is_found(kind: str, rate: float, n_classes: int) -> None:
    x, true, rng = clusters(120 * n_classes, n_classes, seed=1)
    labels = flip(true, transition_matrix(kind, n_classes, rate), rng)
    found = estimate_rates(x, labels, n_classes)
    wrong, counts = labels != true, np.bincount(labels, minlength=n_classes)
    assert overall(found.rates, labels) == pytest.approx(wrong.mean(), abs=0.02)
    np.testing.assert_allclose(found.rates, np.bincount(labels[wrong], minlength=n_classes) / counts, atol=0.04)
    assert (found.doubted != wrong).mean() < 0.01


def test_the_class_that_took_in_strangers_is_the_one_with_noise() -> None:
    x, true, rng = clusters(900, 3, seed=2)
    labels = flip(true, np.array([[1.0, 0.0, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]]), rng)
    rates = estimate_rates(x, labels, 3).rates
    assert rates[:2].max() < 0.02
    assert rates[2] == pytest.approx((labels != true)[labels == 2].mean(), abs=0.03)


@pytest.mark.parametrize("estimator", ["combined", "confident", "likelihood", "anchor", "mixture"])
def test_it_is_what_the_audit_says(estimator: str) -> None:
    x, true, rng = clusters(300, 3, seed=3)
    labels = flip(true, transition_matrix("symmetric", 3, 0.3), rng)
    said = audit(Domain.from_arrays(x, labels), backbone="identity").noise
    expected = said.combined if estimator == "combined" else said.estimates[estimator]
    found = estimate_rates(x, labels, 3, inputs=x, estimator=estimator)
    np.testing.assert_array_equal(found.rates, expected.rates)
    np.testing.assert_array_equal(found.doubted, label_evidence(x, labels, 3, together=False).issues)


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_a_sample_stands_for_all_and_the_others_are_judged_by_it(kind: str) -> None:
    x, true, rng = clusters(4000, 5, seed=4)
    labels = flip(true, transition_matrix(kind, 5, 0.3), rng)
    wrong = labels != true
    found = estimate_rates(x, labels, 5, most=800)
    assert overall(found.rates, labels) == pytest.approx(wrong.mean(), abs=0.05)
    assert found.doubted.shape == labels.shape
    assert (found.doubted != wrong).mean() < 0.01
    again = estimate_rates(x, labels, 5, most=800)
    assert np.array_equal(found.doubted, again.doubted)


def test_a_small_class_is_in_the_sample_and_keeps_its_rate() -> None:
    x, true, rng = clusters(3000, 3, seed=5)
    keep = (true != 2) | (rng.random(3000) < 0.04)
    x, true = x[keep], true[keep]
    labels = true.copy()
    few = np.flatnonzero(true == 0)[:20]
    labels[few] = 2  # a third of what is labelled 2
    found = estimate_rates(x, labels, 3, most=500)
    assert found.rates[2] == pytest.approx((labels != true)[labels == 2].mean(), abs=0.12)
    assert found.rates[:2].max() < 0.05


def test_corrupted_vectors_are_not_taken_for_wrong_labels() -> None:
    x, true, rng = clusters(900, 3, seed=6)
    hit = rng.random(900) < 0.3
    spoiled = corrupt_vectors(x, hit, 6)
    for most in (1000, 400):
        found = estimate_rates(spoiled, true, 3, inputs=spoiled, most=most)
        assert overall(found.rates, true) < 0.05
        assert found.doubted[~hit].mean() < 0.02
        assert found.doubted[hit].mean() < 0.2


@pytest.mark.parametrize("columns", [40, 5000, 5011])
def test_the_largest_are_those_that_sorting_finds(columns: int) -> None:
    values = np.random.default_rng(columns).normal(size=(50, columns)).astype(np.float32)
    best, found = largest(values, 30)
    order = np.argsort(-values, axis=1)[:, :30]
    assert np.array_equal(best, order)
    assert np.array_equal(found, np.take_along_axis(values, order, axis=1))


@settings(deadline=None, max_examples=25)
@given(m=st.integers(12, 80), n_classes=st.integers(1, 8), width=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_rates_are_shares_whatever_the_data(m, n_classes, width, seed) -> None:
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=(m, width)).astype(np.float32), rng.integers(0, n_classes, m)
    for most in (100, 20):
        found = estimate_rates(x, labels, n_classes, inputs=x, most=most)
        assert found.rates.shape == (n_classes,)
        assert bool(((found.rates >= 0) & (found.rates <= 1)).all())
        assert found.doubted.shape == (m,)


def test_features_that_do_not_differ_tell_nothing_and_break_nothing() -> None:
    rates = estimate_rates(np.ones((40, 3), dtype=np.float32), np.arange(40) % 2, 2).rates
    assert bool(np.isfinite(rates).all())


def test_one_class_only_has_no_noise() -> None:
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    found = estimate_rates(x, np.zeros(20, dtype=np.int64), 1)
    assert found.rates.tolist() == [0]
    assert not found.doubted.any()


def test_classes_of_one_example_each_cannot_be_judged() -> None:
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    with pytest.warns(RobustDAWarning, match="taken to be 0"):
        found = estimate_rates(x, np.arange(20), 20)
    assert not found.rates.any()
    with pytest.raises(DataError, match="nothing to compare it with"):
        label_evidence(x, np.arange(20))


@pytest.mark.parametrize("m", [1, 5, 11])
def test_too_few_examples_are_refused_with_advice(m: int) -> None:
    with pytest.raises(DataError, match="give noise_rate a number"):
        estimate_rates(np.ones((m, 2), dtype=np.float32), np.arange(m) % 2, 2)


@needs_data
@pytest.mark.parametrize("domain", ["amazon", "dslr", "webcam"])
@pytest.mark.parametrize("rate", [0.2, 0.4])
def test_what_it_doubts_on_office31_is_wrong(domain: str, rate: float) -> None:
    clean = office31_features(None, domain)
    noisy = office31_draw(None, domain, "label", rate).apply(clean)
    found, wrong = estimate_rates(noisy.x, noisy.y, 31), noisy.y != clean.y
    assert overall(found.rates, noisy.y) == pytest.approx(wrong.mean(), abs=0.03)
    assert wrong[found.doubted].mean() > 0.8
    assert found.doubted[wrong].mean() > 0.75  # amazon at .2 is read cautiously: .80 of the wrong ones, instead of .86


def overall(rates: np.ndarray, labels: np.ndarray) -> float:
    return float(np.average(rates, weights=np.bincount(labels, minlength=len(rates))))


def exact_probabilities(m: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and probabilities in sixteenths: ties, also with the thresholds, are common and exact."""
    rng = np.random.default_rng(seed)
    sixteenths = rng.multinomial(16, rng.dirichlet(np.ones(n_classes)), m)
    likely = sixteenths.argmax(axis=1)
    return np.where(rng.random(m) < 0.6, likely, rng.integers(0, n_classes, m)), sixteenths


def plain_confident_joint(
    labels: list[int], sixteenths: list[list[int]], n_classes: int
) -> tuple[list[list[int]], list[int]]:
    """Northcutt et al., equations 1 and 2, example by example, in exact arithmetic; ties go to the first class."""
    thresholds: list[Fraction | None] = []
    for j in range(n_classes):
        own = [row[j] for row, label in zip(sixteenths, labels, strict=True) if label == j]
        thresholds.append(Fraction(sum(own), len(own)) if own else None)
    joint = [[0] * n_classes for _ in range(n_classes)]
    classes = []
    for row, label in zip(sixteenths, labels, strict=True):
        best = -1
        for j, threshold in enumerate(thresholds):
            if threshold is not None and row[j] >= threshold and (best < 0 or row[j] > row[best]):
                best = j
        classes.append(best)
        if best >= 0:
            joint[label][best] += 1
    return joint, classes


def clusters(m: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Clearly separated classes in twenty dimensions."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(m) % n_classes)
    centres = np.linalg.qr(rng.normal(size=(20, 20)))[0][:n_classes] * 8
    return (centres[labels] + rng.normal(size=(m, 20))).astype(np.float32), labels, rng


def flip(labels: np.ndarray, transition: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.array([rng.choice(len(transition), p=transition[label]) for label in labels])
