"""Accuracy expected without target labels, and calibration."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robustda.data.catalog import office31_draw, office31_features
from robustda.errors import ConfigError, DataError
from robustda.expect import calibrate, expected_accuracy, fit_temperature, opinions, temperature_for
from robustda.methods import Concord
from robustda.noise.evidence import label_evidence
from robustda.noise.vectors import unit


def guesses(true: np.ndarray, accuracy: float, seed: int, classes: int = 10) -> np.ndarray:
    """Probabilities of a model that errs by chance, independently of others."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(len(true)) > accuracy
    said = np.where(wrong, (true + rng.integers(1, classes, len(true))) % classes, true)
    return 0.9 * np.eye(classes)[said] + 0.1 / classes


def softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("accuracy", [0.5, 0.8, 1.0])
def test_good_views_measure_a_model(accuracy):
    true = np.arange(2000) % 10
    views = [guesses(true, 0.97, seed) for seed in (1, 2, 3)]
    value, low, high = expected_accuracy(guesses(true, accuracy, 0), views)
    assert abs(value - accuracy) < 0.05
    assert low <= accuracy <= high
    assert 0 <= low <= value <= high <= 1
    assert high - low < 0.15


def test_the_view_most_like_the_model_has_no_say():
    true = np.arange(1000) % 10
    model = guesses(true, 0.7, 0)
    others = [guesses(true, 0.95, seed) for seed in (1, 2)]
    assert expected_accuracy(model, [model, *others]).value == expected_accuracy(model, others).value


def test_views_may_be_classes():
    true = np.arange(500) % 10
    views = [guesses(true, 0.9, seed) for seed in (1, 2)]
    as_classes = [view.argmax(axis=1) for view in views]
    assert expected_accuracy(views[0], views) == expected_accuracy(views[0], as_classes)


def test_voices_that_disagree_widen_the_interval():
    true = np.arange(1000) % 10
    model = guesses(true, 0.9, 0)
    narrow = expected_accuracy(model, [guesses(true, 0.98, seed) for seed in (1, 2)])
    wide = expected_accuracy(model, [guesses(true, 0.99, 1), guesses(true, 0.5, 2)])
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_few_examples_prove_little():
    few, many = (expected_accuracy(np.eye(3)[[0] * size], [[0] * size] * 2) for size in (4, 400))
    assert few.value == many.value == 1
    assert few.low < 0.75 < 0.9 < many.low


def test_thresholded_confidence_has_a_say():
    # A model whose confidence falls on the target just as its accuracy does.
    rng = np.random.default_rng(0)
    home, away = rng.normal(size=(4000, 2)) * 3, rng.normal(size=(4000, 2))
    labels, true = ((rng.random(4000) < softmax(x)[:, 1]).astype(int) for x in (home, away))
    accuracy = (away.argmax(axis=1) == true).mean()
    views = [np.where(rng.random(4000) < 0.9, true, 1 - true) for _ in range(2)]
    without = expected_accuracy(softmax(away), views)
    given_source = expected_accuracy(softmax(away), views, source_probabilities=softmax(home), source_labels=labels)
    assert given_source.value != without.value
    assert abs(given_source.value - accuracy) < 0.08


def test_opinions_are_of_different_kinds_and_all_good():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 16)) * 2
    y, t = np.arange(300) % 5, np.arange(200) % 5
    x, z = centres[y] + rng.normal(size=(300, 16)), centres[t] + rng.normal(size=(200, 16)) + 1.5
    noisy = np.where(np.arange(300) < 60, (y + 1) % 5, y)
    found = opinions(x, noisy, z, trusted=np.arange(300) >= 60)
    assert set(found) == {"concord", "prototypes", "linear"}
    for view in found.values():
        np.testing.assert_allclose(view.sum(axis=1), 1, atol=1e-6)
        assert (view.argmax(axis=1) == t).mean() > 0.9
    _, low, high = expected_accuracy(found["concord"], found.values())
    assert low <= (found["concord"].argmax(axis=1) == t).mean() <= high


@pytest.mark.parametrize("components", [128, 8])
def test_what_members_found_before_is_used_and_changes_nothing(components):
    rng = np.random.default_rng(3)
    codes = np.arange(240) % 6
    centres = rng.normal(size=(6, 40))
    source, target = (unit(centres[codes] + 0.6 * rng.normal(size=(240, 40)) + shift) for shift in (0, 0.2))
    both = torch.from_numpy(source), torch.eye(6).double()[codes], torch.from_numpy(target)
    found = Concord(seed=0, components=components).opinions(*both)
    plain, quick = (opinions(source, codes, target, 6, known=known) for known in (None, found))
    assert plain.keys() == quick.keys()
    for name, said in plain.items():
        np.testing.assert_allclose(quick[name], said, atol=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.floats(0.2, 5), st.integers(0, 100))
def test_the_temperature_is_found_again(temperature, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(4000, 4)) * 2
    labels = np.array([rng.choice(4, p=row) for row in softmax(logits)])
    found = fit_temperature(softmax(temperature * logits), labels)
    assert found == pytest.approx(temperature, rel=0.15)


@settings(deadline=None, max_examples=25)
@given(st.floats(0.3, 0.98), st.integers(0, 100))
def test_as_sure_as_it_is_right(accuracy, seed):
    given = softmax(np.random.default_rng(seed).normal(size=(200, 4)) * 3)
    changed = calibrate(given, temperature_for(given, accuracy))
    assert changed.max(axis=1).mean() == pytest.approx(accuracy, abs=0.01)
    assert (changed.argmax(axis=1) == given.argmax(axis=1)).all()
    np.testing.assert_allclose(changed.sum(axis=1), 1)


def test_sure_zeros_stay_finite():
    given = np.eye(3)[[0, 1, 2, 0]]
    assert np.isfinite(calibrate(given, 0.02)).all()
    assert 0 < fit_temperature(given, [0, 1, 2, 1]) <= 50.1


@pytest.mark.parametrize(
    ("call", "error", "advice"),
    [
        (lambda p: expected_accuracy(p, [p]), ConfigError, "give more views"),
        (lambda p: expected_accuracy(p, [p, p[1:]]), DataError, "3 examples and the model 4"),
        (lambda p: expected_accuracy(p.argmax(axis=1), [p, p]), DataError, "give its probabilities"),
        (lambda p: expected_accuracy(p * np.nan, [p, p]), DataError, "the model: .*NaN"),
        (lambda p: expected_accuracy(p, [2 * p, p]), DataError, "a view: .*sum to one"),
        (lambda p: expected_accuracy(p, [p, p], source_labels=[0]), ConfigError, "give both"),
        (lambda p: calibrate(p, 0), ConfigError, "above 0"),
        (lambda p: calibrate(p[0], 1), DataError, "give"),
        (lambda p: temperature_for(p, 1.1), ConfigError, "from 0 to 1"),
        (lambda p: opinions(p, [0, 1, 0, 1], p[:, :1]), DataError, "2 features and the target 1"),
        (lambda p: opinions(p, [0, 1, 0, 1], p, trusted=np.zeros(4, dtype=bool)), DataError, "some of them true"),
    ],
)
def test_bad_input_is_one_line(call, error, advice):
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.5, 0.5]])
    with pytest.raises(error, match=advice) as raised:
        call(probabilities)
    assert "\n" not in str(raised.value)


@pytest.mark.skipif("ROBUSTDA_DATA" not in os.environ, reason="ROBUSTDA_DATA does not name the folder with Office-31")
def test_office31_with_the_authors_noise():
    source, target = office31_features(None, "webcam"), office31_features(None, "dslr")
    noisy = office31_draw(None, "webcam", "label", 0.4).apply(source)
    evidence = label_evidence(noisy.x, noisy.y, 31)
    views = opinions(noisy.x, evidence.suggested, target.x, 31, trusted=evidence.confidence > 0.5)
    for view in views.values():
        value, low, high = expected_accuracy(view, views.values())
        accuracy = (view.argmax(axis=1) == target.y).mean()
        assert abs(value - accuracy) < 0.05
        assert low <= accuracy <= high
