"""A small copy of Office-31, for a machine that it has to be sent to: resized, with the corrupted images ready made.

Corruption is defined at native size, so resized images cannot be corrupted any more. The copy therefore holds,
beside every clean image, those that a draw of noise corrupts as they look afterwards.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from robustda.data.catalog import OFFICE_31, office31_draw, office31_images
from robustda.data.domain import Domain
from robustda.data.images import ImageFiles, fit_image, read_image
from robustda.data.parallel import in_order
from robustda.errors import ConfigError

__all__ = ["corrupted_files", "pack_office31", "use_corrupted_files"]

_FOLDER = "office31-corrupted"


def pack_office31(
    root: Path, out: Path, *, size: int = 256, quality: int = 90, noises: Sequence[str] = (), progress: bool = False
) -> int:
    """Write the copy; `noises` are draws of the authors such as ``mixed_0.4``. Returns how many images it holds."""
    if size < 1 or not 1 <= quality <= 100:
        raise ConfigError(f"size is {size} and quality {quality}: give at least 1, and 1 to 100")
    if out.exists():
        raise ConfigError(f"{out} is there already: name a new folder")
    draws = [_noise(noise) for noise in noises]
    domains = {entry.name: office31_images(root, entry.name) for entry in OFFICE_31.domains}
    jobs: list[tuple[Domain, int, Path]] = []
    for name, domain in domains.items():
        jobs += [(domain, row, out / "office31" / name / str(domain.ids[row])) for row in range(len(domain))]
        for kind, rate in draws:
            record = office31_draw(root, name, kind, rate)
            noisy = record.apply(domain)
            assert isinstance(noisy.x, ImageFiles)
            folder = corrupted_files(out, name, kind, rate)
            jobs += [(noisy, row, folder / str(noisy.ids[row])) for row in sorted(noisy.x.edits)]

    def write(job: tuple[Domain, int, Path]) -> None:
        from PIL import Image

        domain, row, path = job
        assert isinstance(domain.x, ImageFiles)
        pixels, edit = read_image(domain.x.paths[row]), domain.x.edits.get(row)
        pixels = pixels if edit is None else edit(pixels)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(fit_image(pixels, size)).save(path, format="JPEG", quality=quality)
        except OSError as error:
            raise ConfigError(f"cannot write {path} ({error.strerror or error}): choose another --out") from error

    for _ in in_order(write, jobs, describe="Packing images" if progress else None):
        pass
    shutil.copytree(Path(root) / "noise", out / "noise")
    return len(jobs)


def corrupted_files(root: Path, domain: str, kind: str, rate: float) -> Path:
    """Where a copy keeps the images that the authors' draw corrupts."""
    return root / _FOLDER / f"{domain}_{kind}_{rate:g}"


def use_corrupted_files(noisy: Domain, folder: Path) -> Domain:
    """The noisy domain with images that were corrupted before in place of those still to be."""
    assert isinstance(noisy.x, ImageFiles)
    paths = np.array(noisy.x.paths, dtype=object)
    for row in noisy.x.edits:
        paths[row] = str(folder / str(noisy.ids[row]))
    return replace(noisy, x=ImageFiles(tuple(paths)))


def _noise(text: str) -> tuple[str, float]:
    kind, _, rate = text.partition("_")
    try:
        return kind, float(rate)
    except ValueError as error:
        raise ConfigError(f"{text!r} names no draw of noise: write it like mixed_0.4") from error
