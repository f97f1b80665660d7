"""Corrupted features: blurred and speckled images, vectors off the others, and none where nothing is corrupted."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from robustda.data.catalog import office31_draw, office31_images
from robustda.data.images import fit_image, read_image
from robustda.errors import DataError
from robustda.noise import corrupt_image, corrupt_vectors
from robustda.noise.corruption import image_corruption, vector_corruption

needs_data = pytest.mark.skipif(
    not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with Office-31 and its draws"
)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_the_papers_corruption_is_seen_however_common_it_is(share: float) -> None:
    images, rng = photographs(60), np.random.default_rng(1)
    hit = rng.permutation(60) < 60 * share
    for row in np.flatnonzero(hit):
        images[row] = corrupt_image(images[row], int(row))
    found = image_corruption(images)
    assert found.corrupted[hit].mean() > 0.95
    assert found.corrupted[~hit].mean() < 0.1
    assert set(found.kind[hit & found.corrupted].tolist()) == {"noise"}


def test_blur_and_specks_are_each_called_by_their_name() -> None:
    images, rng = photographs(60), np.random.default_rng(2)
    for row in range(6):
        images[row] = gaussian_filter(images[row], (4, 4, 0))
    for row in range(6, 12):
        specks = rng.random(images[row].shape[:2])
        images[row][specks < 0.02] = 0
        images[row][specks > 0.98] = 255
    found = image_corruption(images)
    assert found.kind[:6].tolist() == ["blur"] * 6
    assert found.kind[6:12].tolist() == ["noise"] * 6
    assert found.score[12:].max() < found.score[:12].min()


def test_gray_images_are_judged_like_colour_ones() -> None:
    images = photographs(20)
    gray = images.mean(axis=3).astype(np.uint8)
    same = image_corruption(np.repeat(gray[..., None], 3, axis=3))
    np.testing.assert_allclose(image_corruption(gray).score, same.score, atol=1e-4)


def test_blank_images_break_nothing() -> None:
    found = image_corruption(np.zeros((5, 32, 32, 3), dtype=np.uint8))
    assert found.score.tolist() == [0] * 5
    assert found.kind.tolist() == [""] * 5


def test_vectors_with_noise_lie_off_the_others() -> None:
    rng = np.random.default_rng(0)
    clean = (rng.normal(size=(400, 8)) @ rng.normal(size=(8, 60)) + 0.1 * rng.normal(size=(400, 60))).astype(np.float32)
    hit = rng.random(400) < 0.3
    found = vector_corruption(corrupt_vectors(clean, hit, 3))
    assert bool(found.corrupted[hit].all())
    assert found.corrupted[~hit].mean() < 0.02
    assert vector_corruption(clean).corrupted.mean() < 0.02


def test_a_column_of_large_numbers_does_not_hide_the_others() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 30))
    x[:10] *= 8
    x[:, 0] = rng.normal(size=300) * 1e6
    found = vector_corruption(x)
    assert bool(found.corrupted[:10].all())
    assert found.corrupted[10:].mean() < 0.02


def test_vectors_that_do_not_differ_are_not_corrupted() -> None:
    assert not vector_corruption(np.ones((20, 5))).corrupted.any()
    assert not vector_corruption(np.random.default_rng(0).normal(size=(3, 1))).corrupted.any()


@pytest.mark.parametrize(
    ("call", "images", "advice"),
    [
        (image_corruption, np.zeros((3, 32, 32, 3)), "give bytes"),
        (image_corruption, np.zeros((3, 32), dtype=np.uint8), "give bytes"),
        (image_corruption, np.zeros((3, 8, 8, 3), dtype=np.uint8), "16 pixels"),
        (image_corruption, np.zeros((0, 32, 32, 3), dtype=np.uint8), "16 pixels"),
        (vector_corruption, np.zeros(3), "give \\(examples, features\\)"),
        (vector_corruption, [[1.0, np.nan], [0.0, 1.0]], "row 0 .* leave it out"),
        (vector_corruption, [["a"], ["b"]], "no table of numbers"),
    ],
)
def test_input_that_cannot_be_judged_is_refused_with_advice(call, images, advice) -> None:
    with pytest.raises(DataError, match=advice) as error:
        call(images)
    assert "\n" not in str(error.value)


@needs_data
@pytest.mark.parametrize("domain", ["amazon", "webcam"])
def test_the_blurred_images_of_the_authors_draw_are_told_apart(domain: str) -> None:
    record = office31_draw(None, domain, "mixed", 0.4)
    noisy = record.apply(office31_images(None, domain))
    hit = np.isin(noisy.ids, record.ids[record.corrupted_features])
    rows = np.random.default_rng(0).permutation(len(noisy))[:120]
    edits = noisy.x.edits
    images = [read_image(noisy.x.paths[row]) for row in rows]
    images = [edits[row](image) if row in edits else image for row, image in zip(rows.tolist(), images, strict=True)]
    found = image_corruption(np.stack([fit_image(image, 256) for image in images]))
    assert bool(found.corrupted[hit[rows]].all())
    assert found.corrupted[~hit[rows]].mean() < 0.06


def photographs(m: int, side: int = 128, seed: int = 0) -> np.ndarray:
    """Images whose spectrum falls as that of photographs does, each at a slope and contrast of its own."""
    rng = np.random.default_rng(seed)
    rows, columns = np.meshgrid(np.fft.fftfreq(side), np.fft.rfftfreq(side), indexing="ij")
    frequency = np.maximum(np.hypot(rows, columns), 1 / side)
    images = np.empty((m, side, side, 3), dtype=np.uint8)
    for image in images:
        spectrum = np.fft.rfft2(rng.normal(size=(side, side))) / frequency ** rng.uniform(1.5, 1.8)
        gray = np.fft.irfft2(spectrum, s=(side, side))
        gray = 128 + rng.uniform(30, 50) * gray / gray.std()
        image[:] = np.clip(gray[..., None] + rng.normal(0, 10, 3), 0, 255)
    return images
