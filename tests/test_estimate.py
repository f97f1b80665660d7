"""Noise rates: confident learning and anchor points by their definitions, and predictions that never see themselves."""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustda.data.catalog import office31_draw, office31_features
from robustda.errors import DataError
from robustda.noise import transition_matrix
from robustda.noise.estimate import anchor_transition, confident_classes, confident_joint, cross_fit, noise_rates

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


@settings(deadline=None, max_examples=100)
@given(m=st.integers(1, 40), n_classes=st.integers(2, 6), seed=st.integers(0, 2**32 - 1), prior=st.floats(0.5, 10))
def test_confident_rates_count_what_lies_off_the_diagonal(m, n_classes, seed, prior) -> None:
    labels, sixteenths = exact_probabilities(m, n_classes, seed)
    joint = np.array(plain_confident_joint(labels.tolist(), sixteenths.tolist(), n_classes)[0])
    wrong, counts = joint.sum(axis=1) - joint.diagonal(), np.bincount(labels, minlength=n_classes)
    overall = wrong.sum() / m
    rates = noise_rates(labels, sixteenths / 16, prior=prior)
    np.testing.assert_allclose(rates, (wrong + prior * overall) / (counts + prior))
    assert bool(((rates >= 0) & (rates <= 1)).all())


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("n_classes", [3, 10])
def test_the_rate_of_noise_between_clear_clusters_is_found(kind: str, rate: float, n_classes: int) -> None:
    x, true, rng = clusters(120 * n_classes, n_classes, seed=1)
    given_labels = flip(true, transition_matrix(kind, n_classes, rate), rng)
    probabilities = cross_fit(x, given_labels, n_classes)
    rates = noise_rates(given_labels, probabilities)
    counts = np.bincount(given_labels, minlength=n_classes)
    wrong = given_labels != true
    assert (rates * counts).sum() / counts.sum() == pytest.approx(wrong.mean(), abs=0.03)
    by_class = np.bincount(given_labels[wrong], minlength=n_classes) / counts
    np.testing.assert_allclose(rates, by_class, atol=0.06)


def test_the_class_that_took_in_strangers_is_the_one_with_noise() -> None:
    x, true, rng = clusters(900, 3, seed=2)
    transition = np.array([[1.0, 0.0, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]])
    given_labels = flip(true, transition, rng)
    rates = noise_rates(given_labels, cross_fit(x, given_labels, 3))
    assert rates[:2].max() < 0.03
    # The truth is .23. Counting falls short of it: class 1 is clean, so its threshold is high, and not all of those who
    # left it reach that.
    assert 0.1 < rates[2] < 0.25


def test_anchor_points_are_exact_where_there_are_any() -> None:
    transition = np.array([[0.7, 0.2, 0.1], [0.0, 0.6, 0.4], [0.1, 0.1, 0.8]])
    shares = np.array([0.5, 0.3, 0.2])
    rng = np.random.default_rng(0)
    true_posteriors = np.concatenate([rng.dirichlet(np.ones(3), 997), np.eye(3)])[rng.permutation(1000)]
    probabilities = true_posteriors @ transition
    np.testing.assert_allclose(anchor_transition(probabilities), transition)
    given_shares = shares @ transition
    labels = np.repeat(np.arange(3), np.round(1000 * given_shares).astype(int))
    rates = noise_rates(labels, probabilities, method="anchor", prior=0)
    np.testing.assert_allclose(rates, 1 - shares * np.diag(transition) / given_shares, rtol=1e-9)


@pytest.mark.parametrize("quantile", [1.0, 0.9, 0.5, 0.01])
def test_a_quantile_takes_a_less_extreme_anchor(quantile: float) -> None:
    probabilities = np.random.default_rng(0).dirichlet(np.ones(4), 50)
    transition = anchor_transition(probabilities, quantile=quantile)
    for k in range(4):
        value = np.sort(probabilities[:, k])[int(np.ceil(quantile * 50)) - 1]
        (anchor,) = np.flatnonzero(probabilities[:, k] == value)
        np.testing.assert_allclose(transition[k], probabilities[anchor])


@settings(deadline=None, max_examples=25)
@given(
    m=st.integers(11, 80),
    n_classes=st.integers(2, 8),
    width=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    folds=st.integers(2, 6),
    neighbours=st.integers(1, 10),
)
def test_cross_fitted_predictions_are_probabilities_and_follow_the_seed(
    m, n_classes, width, seed, folds, neighbours
) -> None:
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=(m, width)), rng.integers(0, n_classes, m)
    first = cross_fit(x, labels, n_classes, folds=folds, neighbours=neighbours, seed=seed)
    assert first.shape == (m, n_classes)
    assert bool((first >= 0).all())
    np.testing.assert_allclose(first.sum(axis=1), 1, rtol=1e-6)
    again = cross_fit(x, labels, n_classes, folds=folds, neighbours=neighbours, seed=seed)
    assert np.array_equal(first, again)


@settings(deadline=None, max_examples=40)
@given(row=st.integers(0, 59), seed=st.integers(0, 2**32 - 1))
def test_nobody_is_told_a_label_that_only_they_have(row, seed) -> None:
    x, labels, _ = clusters(60, 3, seed)
    labels[row] = 3
    assert cross_fit(x, labels, 4, seed=seed % 7)[row, 3] == 0


@settings(deadline=None, max_examples=40)
@given(row=st.integers(0, 59), seed=st.integers(0, 2**32 - 1))
def test_nobodys_own_label_changes_what_they_are_told(row, seed) -> None:
    x, labels, _ = clusters(60, 3, seed)
    # Neither 3 nor 4 occurs elsewhere, and both come last, so that the folds are the same in both cases.
    labels[row] = 3
    one = cross_fit(x, labels, 5)[row]
    labels[row] = 4
    assert np.array_equal(cross_fit(x, labels, 5)[row], one)


@pytest.mark.parametrize("neighbours", [1, 10])
def test_labels_that_mean_nothing_are_predicted_no_better_than_by_chance(neighbours: int) -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(600, 40)), rng.integers(0, 4, 600)
    probabilities = cross_fit(x, labels, 4, neighbours=neighbours)
    own = probabilities[np.arange(600), labels]
    assert own.mean() < 0.25 + 3 * own.std() / np.sqrt(600)
    # Whoever let an example vote for itself would see it, so this is what the test could catch.
    seen = cross_fit(np.repeat(x, 2, axis=0), np.repeat(labels, 2), 4, neighbours=neighbours)
    assert seen[np.arange(1200), np.repeat(labels, 2)].mean() > own.mean() + 0.04


def test_one_example_or_none_of_a_class_does_no_harm() -> None:
    x, labels, _ = clusters(60, 3, seed=0)
    labels[7] = 3
    probabilities = cross_fit(x, labels, 5)
    assert bool(np.isfinite(probabilities).all())
    assert bool((probabilities[:, 4] == 0).all())
    for method in ("confident", "anchor"):
        rates = noise_rates(labels, probabilities, method=method)
        assert rates.shape == (5,)
        assert bool(((rates >= 0) & (rates <= 1)).all())


def test_features_that_do_not_differ_tell_nothing_and_break_nothing() -> None:
    labels = np.arange(40) % 2
    probabilities = cross_fit(np.ones((40, 3)), labels, 2)
    assert bool(np.isfinite(probabilities).all())
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_one_class_only_has_no_noise() -> None:
    labels = np.zeros(20, dtype=np.int64)
    x = np.random.default_rng(0).normal(size=(20, 2))
    assert noise_rates(labels, cross_fit(x, labels, 1)).tolist() == [0]


@pytest.mark.parametrize("m", [1, 5, 10])
def test_too_few_examples_are_refused_with_advice(m: int) -> None:
    with pytest.raises(DataError, match="give noise_rate a number"):
        cross_fit(np.ones((m, 2)), np.zeros(m, dtype=np.int64), 2)
    with pytest.raises(DataError, match="give noise_rate a number"):
        cross_fit(np.ones((m, 2)), np.zeros(m, dtype=np.int64), 2, folds=20, neighbours=1)


@needs_data
@pytest.mark.parametrize("domain", ["amazon", "dslr", "webcam"])
@pytest.mark.parametrize("rate", [0.2, 0.4])
def test_the_rate_of_the_authors_draws_on_office31_is_found(domain: str, rate: float) -> None:
    clean = office31_features(None, domain)
    noisy = office31_draw(None, domain, "label", rate).apply(clean)
    rates = noise_rates(noisy.y, cross_fit(noisy.x, noisy.y, 31))
    counts = np.bincount(noisy.y, minlength=31)
    assert (rates * counts).sum() / counts.sum() == pytest.approx((noisy.y != clean.y).mean(), abs=0.03)


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
