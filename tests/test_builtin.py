"""The embedded task: right digits, one path for both domains, a shift that is worth adapting to."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from robustda.data import builtin
from robustda.data.builtin import SIDE, glyphs_to_digits, noisy_glyphs_to_digits
from robustda.data.pairs import check_pair
from robustda.errors import ConfigError


def flat(x: np.ndarray) -> np.ndarray:
    return x[..., 0].reshape(len(x), -1) / 255


def test_two_domains_that_fit_together() -> None:
    source, target = glyphs_to_digits(n_source=205)
    check_pair(source, target)
    assert source.x.shape == (205, SIDE, SIDE, 3)
    assert target.x.shape == (1797, SIDE, SIDE, 3)
    assert source.classes.tolist() == target.classes.tolist() == list("0123456789")
    assert set(source.class_counts().tolist()) == {20, 21}
    assert (source.x == source.x[..., :1]).all()
    digits = load_digits()
    np.testing.assert_array_equal(target.y, digits.target)
    grey = target.x[..., 0].reshape(1797, 8, 2, 8, 2).mean(axis=(2, 4)) / 255 * 16
    assert np.abs(grey - digits.images).mean() < 1


def test_ink_is_counted_in_blocks() -> None:
    from PIL import Image

    bitmap = np.random.default_rng(0).integers(0, 256, (32, 32)).astype(np.uint8)
    expected = [
        [sum(bitmap[4 * a + i, 4 * b + j] >= 128 for i in range(4) for j in range(4)) for b in range(8)]
        for a in range(8)
    ]
    np.testing.assert_array_equal(builtin._ink(Image.fromarray(bitmap)), expected)


def test_seeds() -> None:
    first, again, other = (glyphs_to_digits(60, seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.y, again.y)
    assert first.ids.tolist() == again.ids.tolist()
    assert not np.array_equal(first.x, other.x)
    assert not np.array_equal(first.y, other.y)
    with pytest.raises(ConfigError, match="at least 10"):
        glyphs_to_digits(9)


def test_every_face_shows_ten_different_digits() -> None:
    for face in range(len(builtin.FACES)):
        shapes = [np.asarray(builtin._master(k, face, 3).resize((24, 32))).astype(float) for k in range(10)]
        for a in range(10):
            for b in range(a):
                assert np.abs(shapes[a] - shapes[b]).mean() > 10, (builtin.FACES[face], a, b)


def test_glyphs_can_be_learned_and_the_shift_is_real() -> None:
    began = time.perf_counter()
    source, target = glyphs_to_digits()
    assert time.perf_counter() - began < 10  # a third of a second alone; the bound is for a busy machine
    held_out, _ = glyphs_to_digits(1000, seed=1)
    model = LogisticRegression(max_iter=200).fit(flat(source.x), source.y)
    assert model.score(flat(held_out.x), held_out.y) > 0.9
    assert 0.4 < model.score(flat(target.x), target.y) < 0.8


def test_noisy_source() -> None:
    source, target, record = noisy_glyphs_to_digits(n_source=1000, seed=3)
    clean, digits = glyphs_to_digits(1000, seed=3)
    np.testing.assert_array_equal(target.x, digits.x)
    assert abs(record.wrong_labels.mean() - 0.2) < 5 * 0.4 / 1000**0.5
    assert abs(record.corrupted_features.mean() - 0.2) < 5 * 0.4 / 1000**0.5
    restored = record.restore(source)
    np.testing.assert_array_equal(restored.x, clean.x)
    np.testing.assert_array_equal(restored.y, clean.y)
    assert 0 < record.blur < 1
