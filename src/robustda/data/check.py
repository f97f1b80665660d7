"""Is a local copy of a benchmark data set whole? Domains, classes, counts, and files that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robustda.data.catalog import Dataset, dataset, plain_name
from robustda.data.images import image_extensions, read_image
from robustda.data.parallel import in_order
from robustda.data.wording import listed
from robustda.errors import DataError

__all__ = ["WHERE", "DomainCheck", "check_dataset"]

WHERE = {
    "Office-31": "published by Saenko et al. (ECCV 2010), three folders amazon, dslr and webcam; research use",
    "Office-Home": "published by Venkateswara et al. (CVPR 2017) on hemanthdv.org/officeHomeDataset; research use",
    "Bing-Caltech": "Bing images by Bergamo and Torresani (NIPS 2010), and Caltech-256 by Griffin et al. (2007)",
}
"""Where each comes from. They are for research, and to be fetched by whoever agrees to their terms."""


@dataclass(frozen=True)
class DomainCheck:
    """What was found of one domain."""

    name: str
    path: Path | None
    counts: dict[str, int]
    """images in each class folder"""
    problems: tuple[str, ...]

    @property
    def images(self) -> int:
        return sum(self.counts.values())


def check_dataset(name: str, path: str | Path, *, read: bool = True, progress: bool = False) -> list[DomainCheck]:
    """Look at every domain of the data set below `path`; with `read` every image is decoded once."""
    root, about = Path(path), dataset(name)
    if not root.is_dir():
        raise DataError(f"there is no folder {root}: {about.name} is {WHERE[about.name]}")
    folders = {plain_name(entry.name): entry for entry in sorted(root.iterdir()) if entry.is_dir()}
    checks = [_check(about, entry.name, entry.n_images, folders, read, progress) for entry in about.domains]
    shared = set.intersection(*[set(check.counts) for check in checks]) if all(c.counts for c in checks) else set()
    return [_compared(check, shared) for check in checks]


def _check(
    about: Dataset, name: str, expected: int | None, folders: dict[str, Path], read: bool, progress: bool
) -> DomainCheck:
    folder = folders.get(plain_name(name))
    if folder is None:
        there = listed(sorted(entry.name for entry in folders.values()), 5) if folders else "nothing"
        return DomainCheck(name, None, {}, (f"there is no folder {name} (there is {there})",))
    problems = []
    # Office-31 is often unpacked with its images one level deeper.
    inner = folder / "images" if (folder / "images").is_dir() else folder
    suffixes = image_extensions()
    files = {
        entry.name: sorted(file for file in entry.rglob("*") if file.suffix.lower() in suffixes)
        for entry in sorted(inner.iterdir())
        if entry.is_dir()
    }
    counts = {label: len(found) for label, found in files.items()}
    if len(counts) != about.n_classes:
        problems.append(f"{len(counts)} class folders in {inner}, {about.n_classes} expected")
    if empty := [label for label, count in counts.items() if not count]:
        problems.append(f"no images in {listed(empty, 5)}")
    if expected is not None and sum(counts.values()) != expected:
        problems.append(f"{sum(counts.values()):,} images, {expected:,} expected")
    if read:
        paths = [file for found in files.values() for file in found]
        outcomes = in_order(_trouble, paths, describe=f"Reading {name}" if progress else None)
        bad = [f"{file.relative_to(inner)} ({why})" for file, why in zip(paths, outcomes, strict=True) if why]
        if bad:
            problems.append(f"{len(bad)} images cannot be read: {listed(bad, 3)}")
    return DomainCheck(name, folder, counts, tuple(problems))


def _compared(check: DomainCheck, shared: set[str]) -> DomainCheck:
    """With a note on classes that the other domains do not have under that name."""
    alone = sorted(set(check.counts) - shared) if shared else []
    if not alone:
        return check
    note = f"classes that not every domain has: {listed(alone, 5)}"
    return DomainCheck(check.name, check.path, check.counts, (*check.problems, note))


def _trouble(path: Path) -> str:
    try:
        read_image(path)
    except (OSError, ValueError, SyntaxError) as error:
        return str(error) or type(error).__name__
    return ""
