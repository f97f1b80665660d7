"""Features of images, as vectors: the same as the backbone gives inside a method, from Python and the command line."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robustda.cli import main
from robustda.data.catalog import office31_draw, office31_features, office31_images
from robustda.data.domain import Domain
from robustda.errors import DataError
from robustda.features import extract_features
from robustda.nets import create_backbone
from robustda.noise import corrupt

SMALL = {"backbone": "resnet10t", "weights": "random", "device": "cpu"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("cup", "pen"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(5):
            pixels = rng.integers(0, 256, (80, 96, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    return tmp_path / "images"


def test_ids_labels_and_classes_stay(folder: Path, tmp_path: Path) -> None:
    domain = Domain.from_folder(folder)
    found = extract_features(domain, batch_size=4, cache_dir=tmp_path / "cache", **SMALL)
    assert found.kind == "vectors"
    assert found.shape == (512,)
    assert found.ids.tolist() == domain.ids.tolist()
    assert found.labels.tolist() == domain.labels.tolist()
    assert np.isfinite(found.x).all()


def test_the_size_of_a_batch_does_not_matter(folder: Path, tmp_path: Path) -> None:
    import torch

    found = []
    for size in (3, 10):
        torch.manual_seed(0)  # the weights are random
        found.append(extract_features(Domain.from_folder(folder), batch_size=size, cache_dir=tmp_path, **SMALL).x)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


def test_photographs_are_seen_from_both_sides_and_small_images_from_one() -> None:
    backbone = create_backbone("resnet10t", (224, 224, 3), "random")
    rng = np.random.default_rng(0)
    for size, mirror, expected in ((80, None, True), (80, False, False), (48, None, False), (48, True, True)):
        pixels = rng.integers(0, 256, (6, size, size, 3)).astype(np.uint8)
        ways = [Domain.from_arrays(x) for x in (pixels, pixels[:, :, ::-1])]
        here, there = (extract_features(one, backbone=backbone, mirror=mirror, device="cpu").x for one in ways)
        assert np.allclose(here, there, atol=1e-5) == expected, (size, mirror)
        once = [extract_features(one, backbone=backbone, mirror=False, device="cpu").x for one in ways]
        if expected:
            np.testing.assert_allclose(here, np.mean(once, axis=0), atol=1e-5)


def test_corrupted_images_are_marked_and_the_marks_stay(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(40, 200, 200)).cumsum(axis=1).cumsum(axis=2)
    steps -= steps.min(axis=(1, 2), keepdims=True)
    pixels = (255 * steps / steps.max(axis=(1, 2), keepdims=True)).astype(np.uint8)
    pixels[::5] = rng.integers(0, 256, pixels[::5].shape)
    domain = Domain.from_arrays(np.repeat(pixels[..., None], 3, axis=3), np.arange(40) % 2)
    found = extract_features(domain, backbone="resnet10t", weights="random", device="cpu")
    assert found.corrupted is not None
    assert np.flatnonzero(found.corrupted).tolist() == list(range(0, 40, 5))
    found.save_npz(tmp_path / "features.npz")
    back = Domain.read(tmp_path / "features.npz")
    np.testing.assert_array_equal(back.corrupted, found.corrupted)
    assert back.take([5, 1, 2]).corrupted.tolist() == [True, False, False]
    assert extract_features(domain, backbone="resnet10t", weights="random", find_corrupted=False).corrupted is None


def test_vectors_are_refused() -> None:
    with pytest.raises(DataError, match="vectors already"):
        extract_features(Domain.from_arrays(np.zeros((3, 2), dtype=np.float32)))


def test_the_command_writes_what_fit_reads(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy, record = corrupt(Domain.from_folder(folder), "mixed", 0.4, seed=0)
    record.save(tmp_path / "noise.csv")
    common = ["--backbone", "resnet10t", "--weights", "random", "--device", "cpu", "--cache_dir", str(tmp_path / "c")]
    out = tmp_path / "deep" / "noisy.npz"
    assert main(["features", str(folder), "--noise", str(tmp_path / "noise.csv"), "--out", str(out), *common]) == 0
    assert "10 vectors of 512 features" in capsys.readouterr().out
    back = Domain.read(out)
    assert back.labels.tolist() == noisy.labels.tolist()
    table = tmp_path / "clean.csv"
    assert main(["features", str(folder), "--out", str(table), *common]) == 0
    assert Domain.read(table).shape == (512,)
    assert main(["features", str(folder), "--out", "x.txt", *common]) == 2


@pytest.mark.skipif(not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with Office-31")
def test_office31_features_are_reproduced_and_noise_moves_only_the_corrupted(tmp_path: Path) -> None:
    root = Path(os.environ["ROBUSTDA_DATA"])
    record = office31_draw(root, "webcam", "feature", 0.4)
    noisy = record.apply(office31_images(root, "webcam")).take(np.arange(12))
    weights = str(root / "weights" / "resnet50_v1_imagenet.safetensors")
    how = {"backbone": "resnet50_v1", "weights": weights, "device": "cpu", "mirror": False, "pooling": "mean"}
    found = extract_features(noisy, cache_dir=tmp_path, **how)
    stored = office31_features(root, "webcam")
    place = {name: row for row, name in enumerate(stored.ids)}
    clean = np.asarray(stored.x)[[place[name] for name in found.ids]]
    far = np.linalg.norm(found.x - clean, axis=1) / np.linalg.norm(clean, axis=1)
    corrupted = dict(zip(record.ids, record.corrupted_features, strict=True))
    hit = np.array([corrupted[name] for name in found.ids])
    assert 0 < hit.sum() < 12
    assert far[~hit].max() < 0.05
    assert far[hit].min() > 0.3
