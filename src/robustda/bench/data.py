"""The domains of a benchmark as images or frozen features, with the authors' noise (Office-31) or a simulated draw."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from robustda.bench.pack import corrupted_files, use_corrupted_files
from robustda.data.catalog import OFFICE_31, dataset_of, domain_images, office31_draw, office31_features
from robustda.data.domain import Domain
from robustda.data.views import at_size, natural_size
from robustda.errors import ConfigError
from robustda.noise import NoiseRecord, corrupt
from robustda.noise.corruption import image_corruption

__all__ = ["data_root", "noise_record", "noisy_domain", "prepare", "prepare_clean", "target_domain"]


FROM_BOTH_SIDES = ("mirrored", "peaks")
"""the protocols whose features are those of images and their mirror images"""


def data_root(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder with the data: as given, or where ROBUSTDA_DATA points."""
    root = given or os.environ.get("ROBUSTDA_DATA")
    if not root:
        raise ConfigError("where are the data? Give --data FOLDER, or set ROBUSTDA_DATA to it")
    return Path(root)


def target_domain(root: Path, protocol: str, name: str, work: Path = Path("runs/bench")) -> Domain:
    """A target as it is; its labels are for scoring. Features that the data folder lacks come from `work`."""
    if protocol == "finetune":
        return domain_images(root, name)
    if protocol == "features" and dataset_of(name) is OFFICE_31:
        return office31_features(root, name)
    return replace(Domain.from_npz(_features_file(work, protocol, name)), name=name)


def noise_record(root: Path, name: str, noise: str, rate: float, draw: str) -> NoiseRecord:
    """What is wrong with the source: the authors' own draw, or one made by a seed."""
    if draw == "authors":
        return office31_draw(root, name, noise, rate)
    _, record = corrupt(domain_images(root, name), noise, rate, seed=int(draw))  # type: ignore[arg-type]
    return record


def noisy_domain(root: Path, protocol: str, name: str, noise: str, rate: float, draw: str, work: Path) -> Domain:
    """A source with its noise. Features of corrupted images come from `work`, where `prepare` put them."""
    clean = target_domain(root, protocol, name, work)
    if noise == "none" or rate == 0:
        return clean
    record = noise_record(root, name, noise, rate, draw)
    if protocol == "finetune":
        made = corrupted_files(root, name, noise, rate)
        noisy = record.apply(clean)
        return use_corrupted_files(noisy, made) if draw == "authors" and made.is_dir() else noisy
    labelled = replace(record, corrupted_features=np.zeros(len(record), dtype=bool)).apply(clean)
    if not record.corrupted_features.any():
        return labelled
    file = _features_file(work, protocol, name, noise, rate, draw)
    marks = np.load(_marks_file(file)) if protocol in FROM_BOTH_SIDES else None
    return replace(labelled, x=_merged(clean, Domain.from_npz(file)), corrupted=marks)


def prepare_clean(root: Path, protocol: str, name: str, work: Path, *, device: str = "auto") -> None:
    """Features of a domain, once, where the data folder has none."""
    file = _features_file(work, protocol, name)
    known = protocol == "features" and dataset_of(name) is OFFICE_31
    if not known and not file.exists():
        _extract(domain_images(root, name), root, device, protocol, marks=True).save_npz(file)


def prepare(
    root: Path, protocol: str, name: str, noise: str, rate: float, draw: str, work: Path, *, device: str = "auto"
) -> None:
    """Features of the images that the noise corrupts, once: of the others there are features already.

    Which images look corrupted is seen beside all the others.
    """
    file = _features_file(work, protocol, name, noise, rate, draw)
    if noise not in ("feature", "mixed") or rate == 0 or file.exists():
        return
    record = noise_record(root, name, noise, rate, draw)
    if not record.corrupted_features.any():
        return
    images = record.apply(domain_images(root, name))
    if protocol in FROM_BOTH_SIDES:
        images = at_size(images, natural_size(images))
        np.save(_marks_file(file), image_corruption(np.asarray(images.x)).corrupted)
    hit = np.flatnonzero(np.isin(images.ids, record.ids[record.corrupted_features]))
    _extract(images.take(hit), root, device, protocol).unlabelled().save_npz(file)


def _extract(images: Domain, root: Path, device: str, protocol: str, *, marks: bool = False) -> Domain:
    from robustda.features import extract_features

    weights = str(root / "weights" / "resnet50_v1_imagenet.safetensors")
    mirror = protocol in FROM_BOTH_SIDES
    how = {"mirror": mirror, "find_corrupted": mirror and marks, "device": device, "progress": True}
    how |= {"pooling": "peaks", "precision": "auto"} if protocol == "peaks" else {"pooling": "mean"}
    return extract_features(images, backbone="resnet50_v1", weights=weights, **how)  # type: ignore[arg-type]


def _marks_file(features: Path) -> Path:
    return features.with_suffix(".marks.npy")


def _features_file(
    work: Path, protocol: str, name: str, noise: str = "none", rate: float = 0, draw: str = "clean"
) -> Path:
    folder = work / (protocol if protocol in FROM_BOTH_SIDES else "features")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}_{noise}_{rate:g}_{draw}.npz"


def _merged(clean: Domain, found: Domain) -> np.ndarray:
    place = {identity: row for row, identity in enumerate(clean.ids)}
    x = np.array(clean.x)
    x[[place[identity] for identity in found.ids]] = found.x
    return x
