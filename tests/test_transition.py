"""Noise rates and transition matrices: found on known noise, with intervals that hold, and failures not hidden."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustda.data.catalog import office31_draw, office31_features
from robustda.errors import ConfigError, DataError
from robustda.noise import corrupt_labels, transition_matrix
from robustda.noise.confident import confident_joint
from robustda.noise.estimate import estimate_rates
from robustda.noise.evidence import label_evidence
from robustda.noise.likelihood import explain, posterior, sums_by_label
from robustda.noise.mixture import loss_mixture
from robustda.noise.transition import NoiseReport, estimate_noise

needs_data = pytest.mark.skipif(
    not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with Office-31 and its draws"
)


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("n_classes", [5, 20])
def test_the_rate_and_matrix_of_known_noise_are_found(kind: str, rate: float, n_classes: int) -> None:
    x, true = blobs(60 * n_classes, n_classes)
    matrix = transition_matrix(kind, n_classes, rate)
    labels = corrupt_labels(true, matrix, 1)
    best = audit(x, labels, n_classes).combined
    wrong = (labels != true).mean()
    assert best.overall == pytest.approx(wrong, abs=0.02)
    assert best.interval[0] - 1e-9 <= wrong <= best.interval[1] + 1e-9
    realised = sums_by_label(np.eye(n_classes)[labels], true, n_classes)
    realised /= realised.sum(axis=1, keepdims=True)
    assert np.abs(best.transition - realised).sum(axis=1).mean() / 2 < 0.06


def test_class_dependent_noise_is_found_class_by_class() -> None:
    x, true = blobs(600, 6)
    matrix = np.eye(6)
    matrix[0, [0, 3]], matrix[1, [1, 2, 4]], matrix[5, [5, 0]] = (0.6, 0.4), (0.5, 0.3, 0.2), (0.8, 0.2)
    labels = corrupt_labels(true, matrix, 0)
    report = audit(x, labels, 6)
    rates = np.bincount(labels, weights=labels != true, minlength=6) / np.bincount(labels)
    np.testing.assert_allclose(report.combined.rates, rates, atol=0.05)
    covered = (report.combined.intervals[:, 0] <= rates + 1e-9) & (rates <= report.combined.intervals[:, 1] + 1e-9)
    assert covered.mean() >= 5 / 6


def test_one_sided_noise_is_no_longer_underestimated() -> None:
    """30 % of class 1 relabelled as class 2, so .23 of class 2 is wrong; counting on plain predictions found .13."""
    x, true = blobs(900, 3)
    labels = corrupt_labels(true, np.array([[1, 0, 0], [0, 0.7, 0.3], [0, 0, 1.0]]), 2)
    rates = estimate_rates(x, labels, 3).rates
    wrong = (labels != true)[labels == 2].mean()
    assert rates[2] == pytest.approx(wrong, abs=0.03)
    assert rates[:2].max() < 0.02


def test_clean_data_look_clean_and_the_mixtures_failure_is_in_the_report() -> None:
    x, true = blobs(400, 4)
    report = audit(x, true, 4)
    assert report.combined.overall < 0.01
    assert report.disagreement < 0.01
    assert set(report.estimates) == {"confident", "likelihood", "anchor", "mixture"}
    assert report.estimates["mixture"].overall > 0.05


def test_the_combined_estimate_is_the_mean_of_its_two_and_its_interval_holds_both() -> None:
    x, true = blobs(500, 5, spread=1.5)
    labels = corrupt_labels(true, transition_matrix("pair", 5, 0.3), 3)
    report = audit(x, labels, 5)
    parts = [report.estimates[name] for name in ("confident", "likelihood")]
    np.testing.assert_allclose(report.combined.joint, (parts[0].joint + parts[1].joint) / 2)
    assert report.disagreement == pytest.approx(abs(parts[0].overall - parts[1].overall))
    for part in parts:
        assert report.combined.interval[0] <= part.overall <= report.combined.interval[1]
        assert bool((report.combined.intervals[:, 0] <= part.rates).all())
        assert bool((part.rates <= report.combined.intervals[:, 1]).all())


def test_small_classes_share_one_rate() -> None:
    x, true = blobs(300, 3)
    labels = corrupt_labels(true, transition_matrix("symmetric", 3, 0.2), 0)
    labels = np.concatenate([labels, [3, 3, 3, 4, 4]])
    x = np.concatenate([x, np.random.default_rng(0).normal(size=(5, x.shape[1]))])
    report = audit(x, labels, 6)
    assert report.pooled.tolist() == [False, False, False, True, True, True]
    assert len(set(report.combined.rates[3:].tolist())) == 1


@settings(deadline=None, max_examples=60)
@given(m=st.integers(1, 40), n_classes=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_whatever_the_predictions_every_estimate_is_a_distribution(m, n_classes, seed) -> None:
    rng = np.random.default_rng(seed)
    labels, probabilities = rng.integers(0, n_classes, m), rng.dirichlet(np.ones(n_classes), m)
    report = estimate_noise(labels, probabilities, resamples=3)
    shares = np.bincount(labels, minlength=n_classes) / m
    for estimate in [report.combined, *report.estimates.values()]:
        assert bool((estimate.joint >= -1e-12).all())
        assert estimate.joint.sum() == pytest.approx(1)
        np.testing.assert_allclose(estimate.transition.sum(axis=1), 1)
        assert bool(((estimate.rates >= 0) & (estimate.rates <= 1)).all())
        assert bool((estimate.intervals[:, 0] <= estimate.rates).all())
        assert bool((estimate.rates <= estimate.intervals[:, 1]).all())
        assert estimate.interval[0] <= estimate.overall <= estimate.interval[1]
    for name in ("confident", "likelihood", "mixture"):
        np.testing.assert_allclose(report.estimates[name].joint.sum(axis=0), shares, atol=1e-9)
    if n_classes == 1:
        assert report.combined.overall == 0


@settings(deadline=None, max_examples=40)
@given(m=st.integers(2, 60), n_classes=st.integers(2, 6), seed=st.integers(0, 2**32 - 1))
def test_each_step_of_the_fit_follows_bayes_rule(m, n_classes, seed) -> None:
    rng = np.random.default_rng(seed)
    labels, probabilities = rng.integers(0, n_classes, m), rng.dirichlet(np.ones(n_classes), m)
    matrix = rng.dirichlet(np.ones(n_classes), n_classes)
    belief, likelihood = posterior(probabilities, matrix, labels)
    for row in range(m):
        both = [probabilities[row, k] * matrix[k, labels[row]] for k in range(n_classes)]
        np.testing.assert_allclose(belief[row], np.array(both) / sum(both))
        assert likelihood[row] == pytest.approx(sum(both))
    sums = sums_by_label(belief, labels, n_classes)
    plain = [sum((belief[i] for i in range(m) if labels[i] == k), np.zeros(n_classes)) for k in range(n_classes)]
    np.testing.assert_allclose(sums, plain, atol=1e-12)


def test_the_fit_recovers_the_model_that_made_the_labels() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20_000, 3))
    chances = np.exp(4 * scores) / np.exp(4 * scores).sum(axis=1, keepdims=True)
    true = (chances.cumsum(axis=1) > rng.random((20_000, 1))).argmax(axis=1)
    matrix = np.array([[0.7, 0.3, 0.0], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]])
    fitted = explain([scores], corrupt_labels(true, matrix, 0))
    np.testing.assert_allclose(fitted.transition, matrix, atol=0.03)
    assert fitted.weights[0] == pytest.approx(4, abs=0.5)


def test_two_humps_of_losses_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.gamma(2, 0.15, 700), rng.normal(4, 0.6, 300)])
    found = loss_mixture(losses)
    assert found.wrong.mean() == pytest.approx(0.3, abs=0.01)
    assert found.wrong[:700].max() < 0.5 < found.wrong[700:].min()
    assert bool((found.log_odds[700:] > found.log_odds[:700].max()).all())
    assert loss_mixture(np.ones(10)).wrong.tolist() == [0] * 10


def test_the_confident_joint_agrees_exactly_with_cleanlabs() -> None:
    count = pytest.importorskip("cleanlab.count", reason="cleanlab is not installed: pip install cleanlab")
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n_classes = int(rng.integers(2, 12))
        labels = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, 300)])
        probabilities = rng.dirichlet(np.ones(n_classes), len(labels)) + 0.5 * np.eye(n_classes)[labels]
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        theirs = count.compute_confident_joint(labels, probabilities, calibrate=False)
        np.testing.assert_array_equal(confident_joint(labels, probabilities), theirs)


@pytest.mark.parametrize(
    ("labels", "probabilities", "advice"),
    [
        ([0, 2], [[0.5, 0.5], [0.5, 0.5]], "outside the 2 classes.*row 1"),
        ([0, -1], [[0.5, 0.5], [0.5, 0.5]], "leave unlabelled examples out"),
        ([0, 1, 1], [[0.5, 0.5], [0.5, 0.5]], "3 labels came with 2 rows"),
        ([0, 1], [[0.5, 0.5], [0.5, np.nan]], "NaN.*row 1 first"),
        ([0, 1], [[0.5, 0.5], [0.5, 0.4]], "row 1 sums to 0.9"),
        ([0, 1], [[0.5, 0.5], [1.5, -0.5]], "row 1 of the probabilities is negative"),
        ([0, 1], [0.5, 0.5], "give \\(examples, classes\\)"),
        ([0.5, 1], [[0.5, 0.5], [0.5, 0.5]], "no whole numbers"),
        (["a", "b"], [[0.5, 0.5], [0.5, 0.5]], "give codes"),
        ([], np.empty((0, 2)), "one label for each example"),
        ([0], [["a", "b"]], "no table of numbers"),
    ],
)
def test_bad_input_is_refused_in_one_line_of_advice(labels, probabilities, advice) -> None:
    with pytest.raises(DataError, match=advice) as error:
        estimate_noise(labels, probabilities)
    assert "\n" not in str(error.value)


def test_bad_options_and_losses_are_refused() -> None:
    labels, probabilities = [0, 1], [[0.6, 0.4], [0.4, 0.6]]
    with pytest.raises(ConfigError, match="give 2 or more"):
        estimate_noise(labels, probabilities, resamples=0)
    with pytest.raises(DataError, match="give one number for each example"):
        estimate_noise(labels, probabilities, losses=[1.0])
    with pytest.raises(DataError, match="row 1 is nan"):
        estimate_noise(labels, probabilities, losses=[1.0, np.nan])


@needs_data
@pytest.mark.parametrize("domain", ["amazon", "dslr", "webcam"])
@pytest.mark.parametrize(("rate", "within"), [(0.2, 0.03), (0.4, 0.03), (0.6, 0.06)])
def test_the_rate_of_the_authors_draws_is_found(domain: str, rate: float, within: float) -> None:
    clean = office31_features(None, domain)
    labels = office31_draw(None, domain, "label", rate).apply(clean).y
    rates = estimate_rates(clean.x, labels, 31).rates
    overall = np.average(rates, weights=np.bincount(labels, minlength=31))
    assert overall == pytest.approx((labels != clean.y).mean(), abs=within)


def audit(x: np.ndarray, labels: np.ndarray, n_classes: int) -> NoiseReport:
    return estimate_noise(labels, label_evidence(x, labels, n_classes).pred_probs)


def blobs(m: int, n_classes: int, *, spread: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Clusters in twenty dimensions that overlap little."""
    rng = np.random.default_rng(seed)
    true = rng.permutation(np.arange(m) % n_classes)
    centres = 2 * rng.normal(size=(n_classes, 20))
    return (centres[true] + spread * rng.normal(size=(m, 20))).astype(np.float32), true
