"""Noise that follows a rule: seen where there is one, and nowhere else; what it is worth where classes are small."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustda.data.catalog import office31_features
from robustda.noise import corrupt_labels, transition_matrix
from robustda.noise import witnesses as room
from robustda.noise.evidence import label_evidence
from robustda.noise.likelihood import explain, symmetric
from robustda.noise.strangers import judge_labels
from robustda.noise.structure import Structure, find_structure
from robustda.noise.witnesses import describe, nearest

needs_data = pytest.mark.skipif(
    not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with Office-31 and its draws"
)


@settings(deadline=None, max_examples=50)
@given(rate=st.floats(0.05, 0.6), n_classes=st.integers(3, 9), seed=st.integers(0, 2**32 - 1))
def test_seen_through_symmetric_noise_votes_are_votes(rate, n_classes, seed) -> None:
    votes = np.random.default_rng(seed).dirichlet(np.ones(n_classes), 20).astype(np.float32)
    seen = Structure(symmetric(rate, n_classes), np.ones(2)).through(votes)
    np.testing.assert_allclose(seen - seen[:, :1], votes - votes[:, :1], atol=1e-4)


def test_a_few_votes_for_a_class_outweigh_many_that_it_would_have_lost() -> None:
    rule = Structure(transition_matrix("pair", 3, 0.4), np.ones(2))
    seen = rule.through(np.array([[0.4, 0.6, 0.0]], dtype=np.float32))
    assert seen.argmax() == 0  # nobody of class 1 is ever labelled 0
    assert rule.through(np.array([[0.0, 0.6, 0.4]], dtype=np.float32)).argmax() == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6])
def test_no_rule_is_seen_in_symmetric_noise(rate: float, seed: int) -> None:
    x, true = clusters(20, 16, seed=seed)
    assert rule_of(x, corrupt_labels(true, transition_matrix("symmetric", 20, rate), seed), 20) is None


@pytest.mark.parametrize("seed", range(3))
def test_no_rule_is_seen_where_classes_merely_look_alike(seed: int) -> None:
    x, true = clusters(20, 16, seed=seed, alike=True)
    assert rule_of(x, true, 20) is None


@pytest.mark.parametrize("seed", [1, 2, 3])  # nearer to one half, which seed 0 comes to, it is anybody's guess
def test_the_rule_of_pair_noise_is_found_in_small_classes(seed: int) -> None:
    x, true = clusters(20, 16, seed=seed)
    labels = corrupt_labels(true, transition_matrix("pair", 20, 0.4), seed)
    rule = rule_of(x, labels, 20)
    assert rule is not None
    wrong = labels != true
    lost_to = (rule.transition - np.eye(20)).argmax(axis=1)
    assert (lost_to == (np.arange(20) + 1) % 20).mean() > 0.8
    assert f1(label_evidence(x, labels, 20).issues, wrong) > 0.95


def test_noise_that_follows_a_rule_is_read_in_one_way() -> None:
    x, true = clusters(20, 16, seed=1)
    labels = corrupt_labels(true, transition_matrix("pair", 20, 0.4), 1)
    found = label_evidence(x, labels, 20, readings=True)
    assert found.by_rule
    assert found.otherwise is None
    verdict = judge_labels(x, labels, 20, seen_as=lambda rows: rows)
    assert verdict.others == ()
    assert verdict.as_given


def test_two_classes_have_no_rule() -> None:
    x, true = clusters(2, 30, seed=0)
    assert rule_of(x, corrupt_labels(true, transition_matrix("pair", 2, 0.3), 0), 2) is None


@needs_data
@pytest.mark.parametrize("domain", ["dslr", "webcam"])
@pytest.mark.parametrize("seed", [7, 8])
def test_pair_noise_in_the_small_domains_of_office31(domain: str, seed: int) -> None:
    """Ten neighbours' vote and cleanlab have about .72 and .62 there."""
    clean = office31_features(None, domain)
    labels = corrupt_labels(clean.y, transition_matrix("pair", 31, 0.4), seed)
    assert f1(label_evidence(clean.x, labels, 31).issues, labels != clean.y) > 0.8


def rule_of(features: np.ndarray, labels: np.ndarray, n_classes: int) -> Structure | None:
    """What the witnesses go by, from the same first impressions."""
    x, everyone = describe(features), np.ones(len(labels), dtype=bool)
    near, similarity = nearest(x, min(30, len(x) - 1), np.random.default_rng(0))
    sureness, given_labels = room._sureness(similarity), room._one_hot(labels, n_classes)
    first = room._leaving_one_out(x, given_labels, everyone, near, similarity, room._FIRST_RIDGE)
    return find_structure(first, sureness, labels, explain([score * sureness for score in first], labels))


def clusters(n_classes: int, size: int, *, seed: int, alike: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Clusters in thirty dimensions; with `alike` every second one lies close to the one before."""
    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.normal(size=(n_classes, 30))
    if alike:
        centres[1::2] = centres[::2] + 0.35 * rng.normal(size=centres[::2].shape)
    true = np.repeat(np.arange(n_classes), size)
    return (centres[true] + rng.normal(size=(len(true), 30))).astype(np.float32), true


def f1(called: np.ndarray, wrong: np.ndarray) -> float:
    return float(2 * (called & wrong).sum() / max(1, called.sum() + wrong.sum()))
