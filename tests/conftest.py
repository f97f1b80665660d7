"""Small tasks that many tests share. Every fixture is made anew, so that a test may do with it what it likes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

import robustda
from robustda.data.domain import Domain
from robustda.noise.corrupt import NoiseRecord, corrupt

NAMES = np.array(["ant", "bee", "cat", "dog"])


class Pair(NamedTuple):
    """A noisy source and a labelled target, with the record of what is wrong with the source."""

    source: Domain
    target: Domain
    record: NoiseRecord


class Folders(NamedTuple):
    """The same as folders of images, 3 classes of 8 images each."""

    source: Path
    target: Path


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tasks so small gain nothing from more threads, and several test processes would fight for the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def own_image_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test reads or fills the user's own cache; subprocesses inherit this one."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROBUSTDA_CACHE", str(cache))
        yield cache


@pytest.fixture
def pair() -> Pair:
    return make_pair()


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return make_folders(tmp_path)


@pytest.fixture
def command_line() -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line as a user runs it: in a process of its own."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command(*arguments), capture_output=True, text=True, env=environment(), check=False)

    return run


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "robustda.cli", *map(str, arguments)]


def environment() -> dict[str, str]:
    """One thread, and this very package from whatever folder the command is run in."""
    package = str(Path(robustda.__file__).parents[1])
    path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def make_pair(
    seed: int = 0, *, size: int = 240, target_size: int = 200, shift: float = 3.0, rate: float = 0.4, classes: int = 4
) -> Pair:
    """Gaussian clouds in ten dimensions, `rate` of the source's labels wrong, the target moved aside."""
    centres = np.random.default_rng(7).normal(scale=1.3, size=(classes, 10))
    aside = np.random.default_rng(8).normal(size=10)

    def cloud(count: int, stream: int, moved: float, name: str) -> Domain:
        rng = np.random.default_rng([seed, stream])
        codes = rng.permutation(np.arange(count) % classes)
        x = centres[codes] + rng.normal(size=(count, 10)) + moved * aside / np.linalg.norm(aside)
        return Domain.from_arrays(x.astype(np.float32), NAMES[codes], name=name)

    noisy, record = corrupt(cloud(size, 0, 0.0, "source"), "label", rate, seed=seed)
    return Pair(noisy, cloud(target_size, 1, shift, "target"), record)


def make_folders(place: Path) -> Folders:
    """Speckled images of mixed sizes and formats, each class in its own colour; the target is darker."""
    found = Folders(place / "web", place / "camera")
    for seed, (top, light) in enumerate(zip(found, (80, 30), strict=True)):
        rng = np.random.default_rng(seed)
        for channel, name in enumerate(NAMES[:3].tolist()):
            (top / name).mkdir(parents=True)
            for number in range(8):
                height, width = rng.integers(8, 16, 2)
                pixels = rng.integers(0, light, (height, width, 3), dtype=np.uint8)
                pixels[..., channel] += 120
                Image.fromarray(pixels).save(top / name / f"{number}.{'jpg' if number % 2 else 'png'}")
    return found
