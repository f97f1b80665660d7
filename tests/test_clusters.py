"""Clusters have a say where most labels are wrong, and none elsewhere."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from helpers import N_CLUSTERS as K
from helpers import noisy_clusters
from robustda.noise.clusters import beside_votes, cluster_votes, say_of_clusters
from robustda.noise.evidence import label_evidence
from robustda.noise.information import _slope
from robustda.noise.strangers import judge_labels


def judged(x: np.ndarray, given: np.ndarray) -> np.ndarray:
    return judge_labels(x, given, K, seen_as=lambda rows: rows).suggested


def test_they_count_from_half_on_and_fully_from_three_quarters() -> None:
    assert [say_of_clusters(rate) for rate in (0, 0.5, 0.625, 0.75, 0.9)] == [0, 0, 0.5, 1, 1]


@pytest.mark.parametrize("seed", range(3))
def test_where_most_labels_are_wrong_more_are_mended_than_by_neighbours_alone(seed: int) -> None:
    x, true, given = noisy_clusters(0.8, seed)
    alone = label_evidence(x, given, K, together=False)
    assert (given == true).mean() < 0.25
    assert (judged(x, given) == true).mean() > (alone.suggested == true).mean() + 0.03


def test_where_most_are_right_nothing_changes() -> None:
    x, _, given = noisy_clusters(0.4)
    alone = label_evidence(x, given, K, together=False)
    verdict = judge_labels(x, given, K, seen_as=lambda rows: rows)
    np.testing.assert_array_equal(verdict.wrong, alone.wrong)
    np.testing.assert_array_equal(verdict.suggested, alone.suggested)


def test_votes_are_shares_and_classes_keep_their_numbers() -> None:
    x, true, given = noisy_clusters(0.7)
    votes = cluster_votes(x, given, K, 0.7)
    np.testing.assert_allclose(votes.sum(axis=1), 1)
    assert (votes.argmax(axis=1) == true).mean() > 0.9
    turned = cluster_votes(x, (given + 5) % K, K, 0.7)
    assert (turned.argmax(axis=1) == (true + 5) % K).mean() > 0.9


def test_what_is_sure_stays_so() -> None:
    x, true, given = noisy_clusters(0.8)
    sure = np.full((len(x), K), 1e-4)
    sure[np.arange(len(x)), true] = 1
    assert (beside_votes(sure, cluster_votes(x, given, K, 0.8), 0.8).argmax(axis=1) == true).all()


def test_fewer_different_examples_than_classes() -> None:
    x = np.repeat(np.eye(4, dtype=np.float32), 10, axis=0)
    votes = cluster_votes(x, np.arange(40) % K, K, 0.8)
    np.testing.assert_allclose(votes.sum(axis=1), 1)


def test_of_corrupted_examples_they_say_nothing() -> None:
    x, _, given = noisy_clusters(0.8)
    odd = np.arange(len(x)) % 3 == 0
    alone = label_evidence(x, given, K, corrupted=odd, together=False)
    verdict = judge_labels(x, given, K, seen_as=lambda rows: rows, corrupted=odd)
    np.testing.assert_array_equal(verdict.wrong[odd], alone.wrong[odd])
    assert (verdict.wrong[~odd] != alone.wrong[~odd]).any()


def test_there_are_other_readings_where_most_are_wrong_and_they_err_elsewhere() -> None:
    x, true, given = noisy_clusters(0.8)
    verdict = judge_labels(x, given, K, seen_as=lambda rows: rows)
    assert len(verdict.others) == 2
    readings = [verdict.suggested, *verdict.others]
    for codes in verdict.others:
        assert (codes == true).mean() > 0.7
    for one, other in combinations(readings, 2):
        assert (one != other).any()
    again = judge_labels(x, given, K, seen_as=lambda rows: rows)
    for codes, same in zip(verdict.others, again.others, strict=True):
        np.testing.assert_array_equal(codes, same)


def test_where_most_are_right_the_other_reading_is_the_one_that_was_not_taken() -> None:
    x, true, given = noisy_clusters(0.4)
    verdict = judge_labels(x, given, K, seen_as=lambda rows: rows)
    (other,) = verdict.others
    assert verdict.as_given
    assert (other == true).mean() > 0.9
    assert (other != verdict.suggested).any()
    x, _, given = noisy_clusters(0.8)
    table = judge_labels(x, given, K, seen_as=lambda rows: rows, columns=x)
    assert table.others == ()
    assert not table.as_given


@pytest.mark.parametrize("seed", [1, 2])
def test_classes_that_are_hard_to_tell_apart_do_not_make_most_labels_wrong(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = np.repeat(np.arange(400), 2)  # twenty classes of twenty kinds each, which have only their class in common
    x = (rng.normal(size=(400, 32))[kind] + rng.normal(size=(800, 32))).astype(np.float32)
    true = kind % 20
    labels = np.where(rng.random(800) < 0.4, (true + rng.integers(1, 20, 800)) % 20, true)
    found = label_evidence(x, labels, 20, together=False, readings=True)
    assert say_of_clusters(found.rate) > 0, "or this data set shows nothing"
    assert found.even_rate is not None
    assert found.even_rate < 0.5
    verdict = judge_labels(x, labels, 20, seen_as=lambda rows: rows)
    assert verdict.as_given
    np.testing.assert_array_equal(verdict.wrong, found.wrong)


def test_nobody_works_out_readings_that_were_not_asked_for() -> None:
    x, _, given = noisy_clusters(0.4)
    found = label_evidence(x, given, K)
    assert found.otherwise is None
    assert found.even_rate is None


def test_other_readings_leave_corrupted_examples_to_the_first() -> None:
    x, _, given = noisy_clusters(0.8)
    odd = np.arange(len(x)) % 3 == 0
    for codes in judge_labels(x, given, K, seen_as=lambda rows: rows, corrupted=odd).others:
        assert (codes[odd] == -1).all()
        assert (codes[~odd] >= 0).any()


def test_the_slope_of_what_informed_classifiers_minimise() -> None:
    rng = np.random.default_rng(0)
    likely, sizes = torch.from_numpy(rng.random((20, 5))), torch.from_numpy(rng.dirichlet(np.ones(5)))
    logits = torch.from_numpy(rng.normal(size=(20, 5))).requires_grad_()
    log_q = logits.log_softmax(dim=1)
    q, mean = log_q.exp(), log_q.exp().mean(dim=0)
    explained = -(q * likely).sum(dim=1).log().mean()
    (explained - 0.7 * (q * log_q).sum(dim=1).mean() + (mean * (mean / sizes).log()).sum()).backward()
    given = [tensor.detach().numpy().astype(np.float32) for tensor in (logits, likely, sizes.log())]
    np.testing.assert_allclose(_slope(*given, 0.7), logits.grad, atol=1e-7)
