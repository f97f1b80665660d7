"""All labels together say more than each by itself: what the mean field adds to the witnesses, and where it is mute."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import N_CLUSTERS as K
from helpers import noisy_clusters
from robustda.noise.evidence import label_evidence
from robustda.noise.field import beside_field, class_sizes, mean_field, neighbour_graph, transition_point
from robustda.noise.likelihood import symmetric
from robustda.noise.vectors import unit
from robustda.noise.witnesses import describe


def by_labels_alone(given: np.ndarray, rate: float) -> np.ndarray:
    return symmetric(rate, K).T[given]


def test_where_most_labels_are_wrong_more_are_mended_than_by_witnesses_alone() -> None:
    mended: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(5):
        x, true, given = noisy_clusters(0.8, seed)
        assert (given == true).mean() < 0.25
        for together, shares in mended.items():
            shares.append(float((label_evidence(x, given, K, together=together).suggested == true).mean()))
    assert np.mean(mended[True]) > np.mean(mended[False]) + 0.05
    assert all(both >= alone for alone, both in zip(*mended.values(), strict=True))


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6])
def test_where_fewer_are_wrong_no_fewer_are_found(rate: float) -> None:
    x, true, given = noisy_clusters(rate)
    alone, both = (label_evidence(x, given, K, together=together) for together in (False, True))
    assert (both.issues == (given != true)).mean() >= (alone.issues == (given != true)).mean()
    np.testing.assert_array_equal(alone.pred_probs, both.pred_probs)  # of which noise rates are made
    np.testing.assert_array_equal(alone.transition, both.transition)


def test_it_is_the_fixed_point_that_its_equation_says() -> None:
    x, _, given = noisy_clusters(0.5, size=120)
    described, noise = describe(x), symmetric(0.4, K)
    q = mean_field(by_labels_alone(given, 0.5), noise, described, given).astype(np.float64)
    graph = neighbour_graph(unit(described), 12).toarray().astype(np.float64)
    own = np.log(0.3 * noise + 0.7 * symmetric(0.5, K)).T[given]
    wanted = (np.bincount(given, minlength=K) @ symmetric(0.5, K) + class_sizes(given, K, 0.5)) / 2
    scores = own + 2.1 * transition_point(K) * graph @ q

    def probabilities(tilt: np.ndarray) -> np.ndarray:
        found = np.exp(scores + tilt - (scores + tilt).max(axis=1, keepdims=True))
        return found / found.sum(axis=1, keepdims=True)

    tilt = np.zeros(K)
    for _ in range(500):
        sizes = probabilities(tilt).sum(axis=0)
        tilt += 0.05 * (0.8 / (1 - 0.8) * np.log(wanted / sizes) - tilt)
    np.testing.assert_allclose(probabilities(tilt), q, atol=0.03)


def test_the_graph_is_symmetric_and_has_rows_of_about_one() -> None:
    x = unit(np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32))
    graph = neighbour_graph(x, 10)
    np.testing.assert_allclose(graph.toarray(), graph.T.toarray(), atol=1e-6)
    assert (graph.diagonal() == 0).all()
    assert 0.9 < graph.sum(axis=1).mean() < 1.1


def test_numbers_of_classes_are_names_only() -> None:
    x, true, given = noisy_clusters(0.7)
    described = describe(x)
    found = mean_field(by_labels_alone(given, 0.7), symmetric(0.7, K), described, given)
    other = (given + 5) % K
    turned = mean_field(by_labels_alone(other, 0.7), symmetric(0.7, K), described, other)
    np.testing.assert_allclose(np.roll(found, 5, axis=1), turned, atol=1e-3)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    assert (found.argmax(axis=1) == true).mean() > 0.9


def test_classes_may_be_of_very_different_sizes() -> None:
    rng = np.random.default_rng(0)
    true = (np.arange(600) >= 570).astype(np.int64)  # one in twenty
    x = (np.eye(10)[true] * 5 + rng.normal(size=(600, 10))).astype(np.float32)
    given = np.where(rng.random(600) < 0.2, 1 - true, true)
    alone, both = (label_evidence(x, given, 2, together=together) for together in (False, True))
    assert (both.suggested == true).mean() > (alone.suggested == true).mean() + 0.03
    assert (both.suggested[true == 1] == 1).mean() > 0.8


def test_sizes_of_classes_are_believed_as_far_as_they_are_no_chance() -> None:
    rng = np.random.default_rng(0)
    even = rng.integers(0, K, 600)
    np.testing.assert_allclose(class_sizes(even, K, 0.8), 50, rtol=0.2)
    true = np.repeat(np.arange(K), 10 * (1 + np.arange(K)))
    given = np.where(rng.random(len(true)) < 0.3, (true + rng.integers(1, K, len(true))) % K, true)
    found = class_sizes(given, K, 0.3)
    assert found.sum() == pytest.approx(len(true))
    assert np.abs(found / np.bincount(true) - 1).mean() < 0.3
    assert np.corrcoef(found, np.bincount(true))[0, 1] > 0.98


def test_what_is_sure_stays_so() -> None:
    x, true, given = noisy_clusters(0.8)
    sure = np.full((len(x), K), 1e-9)
    sure[np.arange(len(x)), true] = 1
    assert (beside_field(sure, symmetric(0.8, K), describe(x), given).argmax(axis=1) == true).all()


def test_fewer_different_examples_than_classes() -> None:
    x = np.repeat(np.eye(4, dtype=np.float32), 10, axis=0)
    given = np.arange(40) % K
    found = mean_field(by_labels_alone(given, 0.8), symmetric(0.8, K), x, given)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


def test_main_directions_are_found_wherever_they_lie() -> None:
    x, true, given = noisy_clusters(0.7)
    wide = np.zeros((len(x), 200), dtype=np.float32)
    wide[:, 180:] = x  # what counts comes last
    found = mean_field(by_labels_alone(given, 0.7), symmetric(0.7, K), describe(wide), given)
    assert (found.argmax(axis=1) == true).mean() > 0.9


def test_of_corrupted_examples_it_says_nothing() -> None:
    x, _, given = noisy_clusters(0.8)
    odd = np.arange(len(x)) % 3 == 0
    alone, both = (label_evidence(x, given, K, corrupted=odd, together=together) for together in (False, True))
    np.testing.assert_array_equal(both.wrong[odd], alone.wrong[odd])
    assert (both.wrong[~odd] != alone.wrong[~odd]).any()


def test_it_is_not_asked_of_tables_of_rules_and_of_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    x, true, given = noisy_clusters(0.4)

    def nobody_asks(*_: object) -> None:
        raise AssertionError("it was asked")

    monkeypatch.setattr("robustda.noise.evidence.beside_field", nobody_asks)
    label_evidence(x, given, K, columns=x)
    by_rule = np.where(np.random.default_rng(0).random(len(true)) < 0.4, (true + 1) % K, true)
    label_evidence(x, by_rule, K)
    with pytest.raises(AssertionError, match="it was asked"):
        label_evidence(x, given, K)
    monkeypatch.setattr("robustda.noise.evidence._MOST", 1000)
    label_evidence(x, given, K)


def test_coupling_grows_with_the_number_of_classes() -> None:
    points = [transition_point(count) for count in (2, 3, 10, 31, 345)]
    assert points == sorted(points)
    assert points[0] == 2
    assert transition_point(31) == pytest.approx(60 / 29 * np.log(30))
