"""The embedded task: digits rendered from matplotlib's fonts → handwritten digits that scikit-learn ships.

Nothing is downloaded. The handwritten digits were 32 × 32 bitmaps whose ink was counted in blocks of 4 × 4,
which left 8 × 8 counts from 0 to 16; the rendered ones go the same way. What remains between the domains is
type against hand.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robustda.data.domain import Domain
from robustda.errors import ConfigError, DataError

if TYPE_CHECKING:
    from PIL.Image import Image

    from robustda.noise.corrupt import Kind
    from robustda.noise.record import NoiseRecord

__all__ = ["SIDE", "glyphs_to_digits", "noisy_glyphs_to_digits"]

SIDE = 16
"""pixels a side of both domains' images"""

CLASSES = np.array([str(digit) for digit in range(10)])

# Faces looked at one by one. Left out: those without digits or with symbols in their place, and DejaVu Sans
# Mono, whose dotted zero turns into an eight at 8 × 8.
LIGHT_FACES = (
    "DejaVuSans",
    "DejaVuSans-Oblique",
    "DejaVuSerif",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralItalic",
    "cmmi10",
    "cmr10",
    "cmss10",
    "cmti10",
    "cmtt10",
)
BOLD_FACES = (
    "DejaVuSans-Bold",
    "DejaVuSans-BoldOblique",
    "DejaVuSerif-Bold",
    "DejaVuSerif-BoldItalic",
    "STIXGeneralBol",
    "STIXGeneralBolIta",
    "cmb10",
)
FACES = LIGHT_FACES + BOLD_FACES

_POINTS = 64
# Dilation in pixels: hairlines would vanish in a bitmap of 32 × 32, and a bold eight would fill up.
_LIGHT_STROKES, _BOLD_STROKES = (3, 5, 7), (1, 3)
_BITMAP, _BLOCK = 32, 4
_AUTHORS_BLUR, _AUTHORS_SIDE = 8.0, 300


def glyphs_to_digits(n_source: int = 2000, seed: int = 0) -> tuple[Domain, Domain]:
    """Source: ``n_source`` rendered digits. Target: 1,797 handwritten ones, with labels for scoring.

    Images are uint8 (m, 16, 16, 3), white ink on black; the classes are "0" to "9", equally many of each in
    the source. Each source image has its own face, size, stroke, rotation, shear, width and place.

    >>> source, target = glyphs_to_digits(n_source=20)
    >>> len(source), len(target), source.x.shape[1:]
    (20, 1797, (16, 16, 3))
    """
    if n_source < len(CLASSES):
        raise ConfigError(f"n_source is {n_source}: the ten classes need at least 10 images")
    return _glyphs(n_source, seed), _digits()


def noisy_glyphs_to_digits(
    rate: float = 0.4, kind: Kind = "mixed", seed: int = 0, *, n_source: int = 2000
) -> tuple[Domain, Domain, NoiseRecord]:
    """The task with a corrupted source, and its record; the blur is the authors' as a share of the side."""
    from robustda.noise.corrupt import corrupt

    source, target = glyphs_to_digits(n_source, seed)
    noisy, record = corrupt(source, kind, rate, seed=seed, blur=_AUTHORS_BLUR * SIDE / _AUTHORS_SIDE)
    return noisy, target, record


def _glyphs(count: int, seed: int) -> Domain:
    rng = np.random.default_rng(seed)
    digits = rng.permutation(np.arange(count) % len(CLASSES))
    faces = rng.integers(len(FACES), size=count)
    bold = faces >= len(LIGHT_FACES)
    strokes = np.where(bold, rng.choice(_BOLD_STROKES, size=count), rng.choice(_LIGHT_STROKES, size=count))
    masters: dict[tuple[int, int, int], Image] = {}
    counts = np.empty((count, _BITMAP // _BLOCK, _BITMAP // _BLOCK), dtype=np.uint8)
    for i in range(count):
        key = (int(digits[i]), int(faces[i]), int(strokes[i]))
        if key not in masters:
            masters[key] = _master(*key)
        counts[i] = _ink(_posed(masters[key], rng))
    ids = [f"glyph-{i:05d}-{FACES[face]}" for i, face in enumerate(faces)]
    return Domain.from_arrays(_images(counts), CLASSES[digits], ids=ids, classes=CLASSES, name="glyphs")


def _digits() -> Domain:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    ids = [f"digit-{i:04d}" for i in range(len(bunch.target))]
    images = _images(bunch.images.astype(np.uint8))
    return Domain.from_arrays(images, CLASSES[bunch.target], ids=ids, classes=CLASSES, name="digits")


def _master(digit: int, face: int, stroke: int) -> Image:
    """One glyph, large, cut to its ink; wider strokes by dilation, since not every face has a bold cut."""
    import matplotlib
    from PIL import Image, ImageFilter, ImageFont, ImageOps

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{FACES[face]}.ttf"
    try:
        # The basic layout gives the same glyphs whether or not Pillow was built with Raqm.
        font = ImageFont.truetype(str(path), _POINTS, layout_engine=ImageFont.Layout.BASIC)
    except OSError:
        raise DataError(f"matplotlib's font {path} cannot be read: reinstall matplotlib") from None
    ink = font.getmask(str(digit), mode="L")
    glyph = ImageOps.expand(Image.frombytes("L", ink.size, bytes(ink)), stroke)
    thick = glyph.filter(ImageFilter.MaxFilter(stroke))
    return thick.crop(thick.getbbox())


def _posed(glyph: Image, rng: np.random.Generator) -> Image:
    """The glyph on a bitmap: sized, squeezed, slanted, turned and shifted a little."""
    from PIL import Image

    height = rng.uniform(0.8, 1.05) * (_BITMAP - 2) / glyph.height
    width = rng.uniform(0.7, 1.1) * height
    slant, turn = rng.uniform(-0.2, 0.2), math.radians(rng.uniform(-15, 15))
    centre = _BITMAP / 2 + rng.uniform(-1.2, 1.2, size=2)
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    # Pillow asks where each pixel of the result comes from.
    back = np.linalg.inv(rotation @ [[width, slant * height], [0, height]])
    corner = np.array([glyph.width / 2, glyph.height / 2]) - back @ centre
    matrix = tuple(np.column_stack([back, corner]).ravel().tolist())
    return glyph.transform((_BITMAP, _BITMAP), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def _ink(bitmap: Image) -> npt.NDArray[np.uint8]:
    """Black pixels in each block, as the handwritten digits were counted."""
    black = np.asarray(bitmap) >= 128
    blocks = black.reshape(_BITMAP // _BLOCK, _BLOCK, _BITMAP // _BLOCK, _BLOCK)
    return np.asarray(blocks.sum(axis=(1, 3), dtype=np.uint8))


def _images(counts: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """Counts from 0 to 16 as grey images, smoothly enlarged, in three equal channels."""
    from PIL import Image

    grey = np.rint(counts * (255 / _BLOCK**2)).astype(np.uint8)
    large = [Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BICUBIC) for image in grey]
    return np.repeat(np.stack([np.asarray(image) for image in large])[..., None], 3, axis=3)
