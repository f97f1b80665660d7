"""The paper's data sets: their domains, their tasks, and where Office-31 lies in a data folder."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustda.data.domain import Domain
from robustda.errors import ConfigError, DataError

if TYPE_CHECKING:
    from robustda.noise.record import NoiseRecord

__all__ = [
    "BING_CALTECH",
    "DATASETS",
    "OFFICE_31",
    "OFFICE_HOME",
    "Dataset",
    "DomainEntry",
    "dataset",
    "dataset_of",
    "domain_images",
    "office31_draw",
    "office31_features",
    "office31_images",
    "parse_task",
    "plain_name",
    "short_task",
    "tasks",
]


@dataclass(frozen=True)
class DomainEntry:
    """One domain of a data set: its name, the letters the paper uses for it, and how many images it has."""

    name: str
    short: str
    n_images: int | None
    """None where the published counts disagree"""


@dataclass(frozen=True)
class Dataset:
    name: str
    n_classes: int
    domains: tuple[DomainEntry, ...]
    paper_tasks: tuple[str, ...]
    """in the order of the paper's tables"""


OFFICE_31 = Dataset(
    "Office-31",
    31,
    (DomainEntry("amazon", "A", 2817), DomainEntry("dslr", "D", 498), DomainEntry("webcam", "W", 795)),
    ("A→W", "W→A", "A→D", "D→A", "W→D", "D→W"),
)

_HOME = ("Ar", "Cl", "Pr", "Rw")

OFFICE_HOME = Dataset(
    "Office-Home",
    65,
    (
        DomainEntry("Art", "Ar", 2427),
        DomainEntry("Clipart", "Cl", 4365),
        DomainEntry("Product", "Pr", 4439),
        DomainEntry("Real World", "Rw", 4357),
    ),
    tuple(f"{source}→{target}" for source in _HOME for target in _HOME if source != target),
)

BING_CALTECH = Dataset(
    "Bing-Caltech",
    256,
    (DomainEntry("bing", "B", None), DomainEntry("caltech", "C", None)),
    ("B→C",),
)

DATASETS = (OFFICE_31, OFFICE_HOME, BING_CALTECH)


def dataset(name: str) -> Dataset:
    """The data set of that name; case, spaces and hyphens do not matter."""
    for entry in DATASETS:
        if plain_name(entry.name) == plain_name(name):
            return entry
    known = ", ".join(entry.name for entry in DATASETS)
    raise ConfigError(f"unknown data set {name!r}: choose one of {known}")


def dataset_of(domain: str) -> Dataset:
    """The data set that has a domain of that name."""
    for entry in DATASETS:
        if domain in (d.name for d in entry.domains):
            return entry
    raise ConfigError(f"no data set has a domain {domain!r}")


def domain_images(root: str | os.PathLike[str] | None, domain: str) -> Domain:
    """The images of a domain of any of the data sets, not decoded yet.

    They lie in the data folder under the data set's name and their own, such as ``office-home/Real World``; case,
    spaces and hyphens do not matter, nor an ``images`` folder between.
    """
    entry = dataset_of(domain)
    folder = _file(root)
    for name in (entry.name, domain):
        inside = {plain_name(path.name): path for path in sorted(folder.iterdir()) if path.is_dir()}
        if plain_name(name) not in inside:
            there = f"{folder} has no folder for {name}"
            raise DataError(f"{there}: put {entry.name} there, and look at it with robustda data check")
        folder = inside[plain_name(name)]
    folder = folder / "images" if (folder / "images").is_dir() else folder
    return replace(Domain.from_folder(folder, labels="required"), name=domain)


def parse_task(task: str) -> tuple[str, str]:
    """The source's and the target's name.

    >>> parse_task("A→W"), parse_task("A-W"), parse_task("amazon-webcam")
    (('amazon', 'webcam'), ('amazon', 'webcam'), ('amazon', 'webcam'))
    """
    for entry in DATASETS:
        names = {plain_name(word): d.name for d in entry.domains for word in (d.name, d.short)}
        for arrow in ("→", "->", "-"):
            parts = task.split(arrow)
            # A hyphen may also stand inside a name, as in real-world-art.
            for cut in range(1, len(parts)):
                source, target = plain_name("".join(parts[:cut])), plain_name("".join(parts[cut:]))
                if source in names and target in names and source != target:
                    return names[source], names[target]
    raise ConfigError(f"unknown task {task!r}: name two domains of one data set, such as A→W, Ar-Cl or B→C")


def short_task(source: str, target: str) -> str:
    """A task as the paper writes it.

    >>> short_task("amazon", "webcam")
    'A→W'
    """
    short = {entry.name: entry.short for entry in dataset_of(source).domains}
    return f"{short[source]}→{short[target]}"


def tasks(dataset_name: str) -> list[tuple[str, str]]:
    """The paper's tasks on a data set, in the order of its tables, as (source name, target name)."""
    return [parse_task(task) for task in dataset(dataset_name).paper_tasks]


def office31_features(root: str | os.PathLike[str] | None, domain: str) -> Domain:
    """Frozen ResNet-50 features of one domain; ids such as ``calculator/frame_0001.jpg``."""
    domain = _office31(domain)
    with np.load(_file(root, "features", "office31_resnet50.npz"), allow_pickle=False) as arrays:
        x = arrays[f"{domain}_x"].astype(np.float32)
        classes = arrays["classes"]
        labels = classes[arrays[f"{domain}_y"]]
        ids = [file.removeprefix(f"{domain}/") for file in arrays[f"{domain}_files"].tolist()]
    return Domain.from_arrays(x, labels, ids=ids, classes=classes, name=domain)


def office31_images(root: str | os.PathLike[str] | None, domain: str) -> Domain:
    """The images of one domain, not decoded yet."""
    return Domain.from_folder(_file(root, "office31", _office31(domain)), labels="required")


def office31_draw(root: str | os.PathLike[str] | None, domain: str, kind: str, rate: float) -> NoiseRecord:
    """The authors' own draw of noise; apply it to the domain's images or features."""
    from robustda.noise.record import NoiseRecord

    path = _file(root, "noise", "office31", f"{_office31(domain)}_{kind}_{rate:g}.csv")
    return NoiseRecord.from_csv(path, kind=kind, rate=rate, transition="symmetric")


def _office31(domain: str) -> str:
    for entry in OFFICE_31.domains:
        if plain_name(domain) in (plain_name(entry.name), plain_name(entry.short)):
            return entry.name
    raise ConfigError(f"Office-31 has no domain {domain!r}: choose amazon, dslr or webcam")


def _file(root: str | os.PathLike[str] | None, *parts: str) -> Path:
    folder = root or os.environ.get("ROBUSTDA_DATA")
    if not folder:
        raise DataError("where are the data? Give the folder as root, or set ROBUSTDA_DATA to it")
    path = Path(folder, *parts)
    if not path.exists():
        raise DataError(f"{path} is missing: put it there, or set root or ROBUSTDA_DATA to the data")
    return path


def plain_name(word: str) -> str:
    """A name without case, spaces and hyphens, in which people differ."""
    return "".join(letter for letter in word.casefold() if letter.isalnum())
