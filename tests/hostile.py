"""How a case of a bad input is entered, and what several cases are made of; test_hostile.py tries them all."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

CSV = "a,b,label\n1,2,x\n2,1,y\n3,1,x\n4,2,y\n"
X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array(["x", "y", "x", "y"])


class Case(NamedTuple):
    """What is wrong, how to make it, and words of the line that it gets; no words where it must simply work."""

    kind: str
    name: str
    make: Callable[[Path], list[str]]
    words: tuple[str, ...]
    warns: bool = False


CASES: list[Case] = []


def bad(kind: str, name: str, *words: str, warns: bool = False) -> Callable[[Callable[[Path], object]], None]:
    """Enter a case. Its function makes files in a folder and returns the arguments, or a source to fit on."""

    def enter(make: Callable[[Path], object]) -> None:
        def arguments(place: Path) -> list[str]:
            found = make(place)
            return [str(word) for word in found] if isinstance(found, list) else fit(place, source=found)

        CASES.append(Case(kind, name, arguments, words, warns))

    return enter


def fit(
    place: Path, *more: object, source: object = None, target: object = None, method: str = "prototypes"
) -> list[str]:
    """A fit that takes no training steps, on sound data where nothing else is given."""
    if source is None:
        source = place / "sound.csv"
        source.write_text(CSV)
    options = ["--method", method, "--source", source, "--target", target or source, "--out", place / "run"]
    return [
        "fit",
        *map(str, options),
        "--progress",
        "false",
        "--tensorboard",
        "false",
        "--device",
        "cpu",
        *map(str, more),
    ]


def table(content: str | bytes, name: str = "source.csv") -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        path = place / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def images(*odd: tuple[str, bytes]) -> Callable[[Path], Path]:
    """A folder with two classes of sound images, and some more."""

    def make(place: Path) -> Path:
        rng = np.random.default_rng(0)
        for name in ("x", "y"):
            (place / "web" / name).mkdir(parents=True)
            for number in range(3):
                pixels = rng.integers(0, 255, (10, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / "web" / name / f"{number}.png")
        for name, content in odd:
            (place / "web" / "x" / name).write_bytes(content)
        return place / "web"

    return make


def encoded(image: Image.Image, kind: str, **how: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **how)  # type: ignore[arg-type]
    return buffer.getvalue()
