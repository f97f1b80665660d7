"""Which labels are wrong: by predictions, by features, by losses; what the labels should be; copies; alike classes."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustda.data.catalog import office31_draw, office31_features
from robustda.errors import ConfigError, DataError
from robustda.noise import corrupt_labels, corrupt_vectors, transition_matrix
from robustda.noise.evidence import label_evidence
from robustda.noise.issues import (
    find_duplicates,
    find_label_issues,
    get_label_quality_scores,
    overlapping_classes,
)

needs_data = pytest.mark.skipif(
    not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with Office-31 and its draws"
)


@settings(deadline=None, max_examples=60)
@given(m=st.integers(1, 40), n_classes=st.integers(2, 6), seed=st.integers(0, 2**32 - 1))
def test_quality_scores_are_lower_for_worse_labels(m, n_classes, seed) -> None:
    rng = np.random.default_rng(seed)
    labels, probabilities = rng.integers(0, n_classes, m), rng.dirichlet(np.ones(n_classes), m)
    own = [row[label] for row, label in zip(probabilities.tolist(), labels.tolist(), strict=True)]
    assert get_label_quality_scores(labels, probabilities).tolist() == own
    margin = get_label_quality_scores(labels, probabilities, method="normalized_margin")
    for row, label, value in zip(probabilities.tolist(), labels.tolist(), margin.tolist(), strict=True):
        assert value == pytest.approx((row[label] - max(row[:label] + row[label + 1 :]) + 1) / 2)
    mask = find_label_issues(labels, probabilities)
    ranked = find_label_issues(labels, probabilities, return_indices_ranked_by="normalized_margin")
    assert sorted(ranked.tolist()) == np.flatnonzero(mask).tolist()
    assert bool((np.diff(margin[ranked]) >= 0).all())


def test_quality_scores_agree_with_cleanlabs() -> None:
    rank = pytest.importorskip("cleanlab.rank", reason="cleanlab is not installed: pip install cleanlab")
    rng = np.random.default_rng(0)
    labels, probabilities = rng.integers(0, 5, 200), rng.dirichlet(np.ones(5), 200)
    for method in ("self_confidence", "normalized_margin"):
        theirs = rank.get_label_quality_scores(labels, probabilities, method=method)
        np.testing.assert_allclose(get_label_quality_scores(labels, probabilities, method=method), theirs)


@pytest.mark.parametrize("how", ["likelihood", "confident_learning", "predicted_neq_given"])
def test_planted_issues_are_found_by_every_filter(how: str) -> None:
    rng = np.random.default_rng(0)
    true = np.arange(300) % 3
    probabilities = np.eye(3)[true] * 0.8 + 0.2 * rng.dirichlet(np.ones(3), 300)
    labels = true.copy()
    labels[:45] = (true[:45] + 1) % 3
    found = find_label_issues(labels, probabilities, filter_by=how)
    assert found[:45].mean() > 0.5
    assert not found[45:].any()


def test_one_class_has_no_issues_and_unknown_ways_are_refused() -> None:
    assert find_label_issues([0, 0], [[1.0], [1.0]]).tolist() == [False, False]
    with pytest.raises(ConfigError, match="unknown filter"):
        find_label_issues([0, 1], [[0.5, 0.5]] * 2, filter_by="magic")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="unknown score"):
        get_label_quality_scores([0, 1], [[0.5, 0.5]] * 2, method="magic")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="sums to"):
        find_label_issues([0, 1], [[0.5, 0.2]] * 2)


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_wrong_labels_are_found_and_set_right(kind: str) -> None:
    x, true = blobs(800, 8)
    labels = corrupt_labels(true, transition_matrix(kind, 8, 0.3), 0)
    wrong = labels != true
    evidence = label_evidence(x, labels)
    assert f1(evidence.issues, wrong) > 0.97
    assert (evidence.suggested == true).mean() > 0.97
    assert evidence.rate == pytest.approx(wrong.mean(), abs=0.02)
    # Probabilities mean what they say.
    assert np.mean((evidence.wrong - wrong) ** 2) < 0.02
    kept = evidence.keep(0.99)
    assert (~wrong)[kept].mean() > 0.98
    assert kept.mean() > 0.6


@settings(deadline=None, max_examples=15)
@given(row=st.integers(0, 79), seed=st.integers(0, 2**32 - 1))
def test_ones_own_label_has_no_part_in_what_the_witnesses_say(row, seed) -> None:
    x, true = blobs(80, 3, seed=seed)
    labels = true.copy()
    # Neither 3 nor 4 occurs elsewhere, and both come last, so that folds are the same; the shared weights may move.
    labels[row] = 3
    one = label_evidence(x, labels, 5).pred_probs[row]
    labels[row] = 4
    other = label_evidence(x, labels, 5).pred_probs[row]
    np.testing.assert_allclose(one[:3], other[:3], atol=0.02)


def test_evidence_follows_the_seed() -> None:
    x, true = blobs(120, 3)
    first, again = (label_evidence(x, true, seed=5) for _ in range(2))
    assert np.array_equal(first.wrong, again.wrong)


def test_labels_without_meaning_are_not_believed() -> None:
    rng = np.random.default_rng(0)
    evidence = label_evidence(rng.normal(size=(400, 20)), rng.integers(0, 4, 400))
    # Three in four would be wrong if there were a truth.
    assert evidence.rate > 0.5


def test_the_only_example_of_a_class_is_not_judged() -> None:
    x, true = blobs(100, 3)
    labels = true.copy()
    labels[7] = 4
    evidence = label_evidence(x, labels)
    assert np.flatnonzero(~evidence.judged).tolist() == [7]
    assert not evidence.issues[7]
    assert evidence.suggested[7] == 4


def test_losses_add_to_the_evidence() -> None:
    x, true = blobs(400, 4, spread=5.0)
    labels = corrupt_labels(true, transition_matrix("symmetric", 4, 0.3), 0)
    wrong = labels != true
    losses = np.where(wrong, 3.0, 0.5) + np.random.default_rng(0).gamma(2, 0.2, 400)
    without, with_losses = label_evidence(x, labels), label_evidence(x, labels, losses=losses)
    assert f1(with_losses.issues, wrong) > f1(without.issues, wrong) + 0.02


def test_corrupted_features_are_no_reason_to_doubt_a_label() -> None:
    x, true = blobs(600, 6)
    labels = corrupt_labels(true, transition_matrix("symmetric", 6, 0.2), 0)
    wrong = labels != true
    hit = np.random.default_rng(1).random(600) < 0.2
    noisy = corrupt_vectors(x, hit, 0, scale=20.0)
    evidence = label_evidence(noisy, labels, corrupted=hit)
    kept = evidence.keep(0.9)
    assert kept[hit & ~wrong].mean() > 0.75
    assert (~wrong)[kept].mean() > 0.9
    assert f1(evidence.issues[~hit], wrong[~hit]) > 0.97


@pytest.mark.parametrize(
    ("features", "labels", "options", "advice"),
    [
        (np.zeros((20, 3)), np.zeros(20, dtype=int), {}, "same label"),
        (np.zeros((20, 3)), np.arange(19) % 2, {}, "one row for each label"),
        (np.full((20, 3), np.nan), np.arange(20) % 2, {}, "NaN"),
        (np.zeros((4, 3)), np.arange(4) % 2, {}, "give at least 12"),
        (np.zeros((20, 3)), np.arange(20) % 2, {"n_classes": 1}, "outside the 1 classes"),
        (np.zeros((20, 3)), np.arange(20) % 2, {"corrupted": np.ones(20, dtype=bool)}, "sound features"),
        (np.zeros((20, 3)), np.arange(20) % 2, {"corrupted": np.ones(20)}, "truth values"),
        (np.zeros((20, 3)), np.arange(20) % 2, {"losses": np.ones(3)}, "one number for each"),
        ([["a"]] * 20, np.arange(20) % 2, {}, "no table of numbers"),
    ],
)
def test_bad_input_is_refused_in_one_line_of_advice(features, labels, options, advice) -> None:
    with pytest.raises(DataError, match=advice) as error:
        label_evidence(features, labels, **options)
    assert "\n" not in str(error.value)


def test_features_that_do_not_differ_break_nothing() -> None:
    evidence = label_evidence(np.ones((40, 3)), np.arange(40) % 2)
    assert bool(np.isfinite(evidence.wrong).all())


def test_copies_are_found_and_their_quarrels_named() -> None:
    x, true = blobs(60, 3)
    x[10], x[20], x[30] = x[5], x[5], x[6] * 1.0001
    labels = true.copy()
    labels[[5, 10, 20]] = 0, 0, 1
    labels[30] = labels[6]
    found = find_duplicates(x, labels, near=0.9999)
    assert np.flatnonzero(found.exact).tolist() == [5, 10, 20]
    assert np.flatnonzero(found.group >= 0).tolist() == [5, 6, 10, 20, 30]
    assert len({*found.group[[5, 10, 20]].tolist()}) == 1
    assert found.group[6] == found.group[30] != found.group[5]
    assert np.flatnonzero(found.conflict).tolist() == [5, 10, 20]
    with pytest.raises(ConfigError, match="near"):
        find_duplicates(x, labels, near=0)


def test_classes_that_overlap_are_named_and_exchanged_labels_are_not_overlap() -> None:
    rng = np.random.default_rng(0)
    true = rng.permutation(np.arange(900) % 5)
    centres = 3 * rng.normal(size=(5, 20))
    centres[4] = centres[3] + 0.35
    x = centres[true] + rng.normal(size=(900, 20))
    matrix = np.eye(5)
    matrix[0, [0, 1]] = 0.7, 0.3
    labels = corrupt_labels(true, matrix, 0)
    pairs = overlapping_classes(labels, label_evidence(x, labels).pred_probs)
    assert (pairs[0].first, pairs[0].second) == (3, 4)
    assert pairs[0].share > 0.05
    assert (0, 1) not in {(pair.first, pair.second) for pair in pairs}


@needs_data
def test_wrong_labels_of_the_authors_draws_are_found() -> None:
    scores = []
    for domain in ("amazon", "dslr", "webcam"):
        clean = office31_features(None, domain)
        labels = office31_draw(None, domain, "label", 0.4).apply(clean).y
        scores.append(f1(label_evidence(clean.x, labels, 31).issues, labels != clean.y))
    assert np.mean(scores) >= 0.95


@needs_data
@pytest.mark.parametrize("domain", ["amazon", "dslr", "webcam"])
def test_few_labels_of_clean_data_are_called_wrong(domain: str) -> None:
    clean = office31_features(None, domain)
    assert label_evidence(clean.x, clean.y, 31).issues.mean() <= 0.03


def f1(called: np.ndarray, wrong: np.ndarray) -> float:
    return float(2 * (called & wrong).sum() / max(1, called.sum() + wrong.sum()))


def blobs(m: int, n_classes: int, *, spread: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Clusters in twenty dimensions that overlap little."""
    rng = np.random.default_rng(seed)
    true = rng.permutation(np.arange(m) % n_classes)
    centres = 2 * rng.normal(size=(n_classes, 20))
    return (centres[true] + spread * rng.normal(size=(m, 20))).astype(np.float32), true
