"""The third witness, for rows of a table: trees that never saw the label that they judge."""

from __future__ import annotations

import numpy as np
import pytest

from robustda import Clarity, Domain, audit
from robustda.columns import Table, rows_of
from robustda.noise import estimate, strangers, trees
from robustda.noise.evidence import label_evidence
from robustda.noise.trees import Trees
from robustda.noise.vectors import unit


def steps_in_one_column(size: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Five classes by where one column lies, and fourteen columns that say nothing: columns, true and given labels."""
    rng = np.random.default_rng(seed)
    columns = rng.uniform(-1, 1, (size, 15)).astype(np.float32)
    true = np.digitize(columns[:, 3], [-0.6, -0.2, 0.2, 0.6])
    given = np.where(rng.random(size) < 0.3, (true + rng.integers(1, 5, size)) % 5, true)
    return columns, true, given


def described(columns: np.ndarray) -> np.ndarray:
    return unit(np.asarray(rows_of(Table.of(columns, columns), columns)))


def f1(found: np.ndarray, wrong: np.ndarray) -> float:
    return float(2 * (found & wrong).sum() / (found.sum() + wrong.sum()))


@pytest.mark.parametrize("seed", [0, 3])  # with seed 3 the two others alone would find a rule where there is none
def test_trees_see_what_neighbours_do_not(seed):
    columns, true, given = steps_in_one_column(seed=seed)
    x, wrong = described(columns), true != given
    without = label_evidence(x, given, 5)
    heard = label_evidence(x, given, 5, columns=columns)
    assert f1(heard.issues, wrong) > 0.8 > 0.6 > f1(without.issues, wrong)
    assert abs(heard.rate - wrong.mean()) < 0.1 < abs(without.rate - wrong.mean())
    assert (heard.suggested == true).mean() > 0.85
    assert len(heard.weights) == 3
    assert len(without.weights) == 2


def test_the_label_of_a_row_has_no_part_in_what_is_said_of_it():
    columns, _, given = steps_in_one_column(200)
    other = given.copy()
    other[7] = (given[7] + 2) % 5
    before, after = (Trees(columns, 5, seed=1).learn(labels)[7] for labels in (given, other))
    chance = before.min(), after.min()
    before, after = before - chance[0], after - chance[1]  # how far they are stretched may differ a little
    np.testing.assert_allclose(before / before.sum(), after / after.sum(), atol=1e-5)


def test_those_whom_no_tree_has_learned_from_are_judged_by_all(monkeypatch):
    monkeypatch.setattr(trees, "_ROWS", 150)
    columns, true, given = steps_in_one_column(400)
    found = Trees(columns, 5)
    scores = found.learn(given)
    assert scores.shape == (400, 5)
    assert scores.dtype == np.float32
    strangers = (scores == found(columns)).all(axis=1)
    assert strangers.sum() == 250
    assert (scores[strangers].argmax(axis=1) == true[strangers]).mean() > 0.5
    np.testing.assert_array_equal(Trees(columns, 5).learn(given), scores)


def test_a_class_that_nobody_has_is_nobodys():
    columns, _, given = steps_in_one_column(200)
    scores = Trees(columns, 6).learn(np.where(given == 4, 0, given))
    assert scores.shape == (200, 6)
    assert (scores[:, 4:] <= scores.min(axis=1, keepdims=True)).all()


@pytest.mark.parametrize("size", [12, 20])
def test_a_few_rows_will_do(size):
    columns, _, given = steps_in_one_column(size)
    given[:2] = 0, 1
    scores = Trees(columns, 5).learn(given)
    assert np.isfinite(scores).all()
    alone = Trees(columns, 5).learn(np.zeros(size, dtype=np.int64))  # all believed to be of one class
    assert (alone.argmax(axis=1) == 0).all()
    assert np.abs(alone).max() < 2


def test_a_sample_stands_for_all_with_trees_too(monkeypatch):
    columns, true, given = steps_in_one_column(1500)
    wrong = true != given
    whole = rows_of(Table.of(columns, columns), columns)
    some = strangers.judge_labels(whole, given, 5, seen_as=unit, columns=columns, most=700)
    every = strangers.judge_labels(whole, given, 5, seen_as=unit, columns=columns)
    assert f1(every.issues, wrong) > 0.8
    assert f1(some.issues, wrong) > 0.7
    rates = estimate.estimate_rates(whole, given, 5, columns=columns, most=700)
    assert abs(rates.rates.mean() - wrong.mean()) < 0.1
    assert f1(rates.doubted, wrong) > 0.7


def test_noise_that_follows_a_rule_is_judged_without_them():
    rng = np.random.default_rng(0)
    true = np.arange(600) % 6
    columns = (3 * np.eye(6)[true] + rng.normal(size=(600, 6))).astype(np.float32)
    given = np.where(rng.random(600) < 0.35, (true + 1) % 6, true)
    found = label_evidence(described(columns), given, 6, columns=columns)
    assert len(found.weights) == 2
    assert found.trees is None
    assert f1(found.issues, true != given) > 0.85


def test_fit_and_audit_ask_them():
    columns, true, given = steps_in_one_column(500)
    there, truth, _ = steps_in_one_column(300, seed=1)
    found = audit(Domain.from_arrays(columns, given))
    assert f1(found.issues, true != given) > 0.7
    model = Clarity(heads=1, head_steps=200).fit(
        Domain.from_arrays(columns, given), Domain.from_arrays(there), device="cpu", tensorboard=False, progress=False
    )
    assert f1(model.trust_ < 0.5, true != given) > 0.7
    assert (model.predict(there) == truth).mean() > 0.5
