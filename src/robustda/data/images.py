"""Image files: read in any mode, decoded once and in parallel into a byte cache, then memory-mapped.

>>> files = ImageFiles(("web/cat/1.jpg", "web/dog/2.png"))        # doctest: +SKIP
>>> decode(files, 224).pixels.shape                                # doctest: +SKIP
(2, 224, 224, 3)
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from robustda.data import cache
from robustda.data.parallel import in_order
from robustda.errors import ConfigError, DataError

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "Decoded",
    "Edit",
    "ImageFiles",
    "decode",
    "fit_image",
    "image_extensions",
    "longer_side",
    "read_image",
    "to_rgb",
]

Pixels = npt.NDArray[np.uint8]


class Edit(Protocol):
    """A change made to one decoded image at its native size, before it is resized."""

    @property
    def key(self) -> str:
        """Tells this edit from others in the cache: the same key must mean the same result."""

    def __call__(self, image: Pixels) -> Pixels: ...


@dataclass(frozen=True)
class ImageFiles:
    """Images that lie in files and are not decoded yet, with the edits some rows are to get."""

    paths: tuple[str, ...]
    edits: Mapping[int, Edit] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, indices: Any) -> ImageFiles:
        """These rows, in this order, each with its edit."""
        rows = np.arange(len(self))[indices].tolist()
        edits = {place: self.edits[row] for place, row in enumerate(rows) if row in self.edits}
        return ImageFiles(tuple(self.paths[row] for row in rows), edits)

    def with_edits(self, edits: Mapping[int, Edit]) -> ImageFiles:
        """The same files with these edits added; a row that has one already gets the new one instead."""
        if outside := [row for row in edits if not 0 <= row < len(self)]:
            raise IndexError(f"no image at row {outside[0]}: there are {len(self)}")
        return replace(self, edits={**self.edits, **edits})


class Decoded(NamedTuple):
    """What `decode` found: the pixels of the readable files, which those are, and why the others are not."""

    pixels: np.memmap[Any, np.dtype[np.uint8]]
    kept: npt.NDArray[np.int64]
    bad: list[tuple[str, str]]


def decode(
    files: ImageFiles,
    size: int,
    *,
    cache_dir: str | Path | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Decoded:
    """Every image as size × size bytes, mapped read-only from the cache, which is filled if need be.

    The cache is keyed by content: a changed file is noticed, a renamed one is not decoded again.
    """
    import PIL
    from PIL import Image

    if size < 1:
        raise ConfigError(f"an image cannot be {size} pixels wide: give a size of at least 1")
    if not len(files):
        raise DataError("there are no images to decode")
    Image.init()  # here, since Pillow loads its formats on first use and does not expect threads then
    folder = cache.cache_folder(cache_dir)
    contents = cache.file_contents(files.paths, folder, workers=workers, progress=progress)
    key = cache.entry_key(size, [(content.digest, edit_key(files, row)) for row, content in enumerate(contents)])
    decoder = f"Pillow {PIL.__version__}: {' '.join(sorted(Image.OPEN))}"

    def decoded_row(row: int) -> Pixels | str:
        return _decode_row(files.paths[row], contents[row], files.edits.get(row), size)

    entry = cache.open_entry(folder, key, decoder)
    if entry is None:
        describe = "Decoding images" if progress else None
        rows = in_order(decoded_row, range(len(files)), workers=workers, describe=describe)
        entry = cache.fill_entry(folder, key, decoder, size, rows)
    if entry.pixels is None:
        row, reason = entry.bad[0]
        raise DataError(f"none of the {len(files):,} images can be read (first {files.paths[row]}: {reason})")
    return Decoded(entry.pixels, entry.kept, [(files.paths[row], reason) for row, reason in entry.bad])


def read_image(path: str | Path) -> Pixels:
    """One image as RGB bytes at its native size: upright, transparency over white, the first frame."""
    return np.array(_open_rgb(path))


def fit_image(image: Pixels, size: int) -> Pixels:
    """The image squashed to size × size, bilinear with antialiasing."""
    from PIL import Image

    return _fit(Image.fromarray(image), size)


def longer_side(path: str | Path) -> int | None:
    """The longer side from the file's header alone; None where it cannot be read."""
    from PIL import Image

    try:
        if not Path(path).is_file():  # opening a pipe would wait for ever
            return None
        with Image.open(path, formats=image_formats()) as image:
            return max(image.size)
    except Exception:  # as in read_image; `decode` is where unreadable files are reported
        return None


def image_extensions() -> frozenset[str]:
    """The endings, in lower case with their dot, of the formats that Pillow can open."""
    from PIL import Image

    endings = Image.registered_extensions().items()
    return frozenset(ending.lower() for ending, kind in endings if kind in image_formats())


@functools.cache
def image_formats() -> tuple[str, ...]:
    """The formats that are read: all of Pillow's but for those it has no decoder for, or hands to another program."""
    from PIL import Image

    Image.init()
    only_recognised = {"BUFR", "GRIB", "HDF5", "MPEG"}
    programs = {"EPS", "WMF"}  # a file is judged by its content: an EPS called a.jpg would be run by Ghostscript
    return tuple(kind for kind in Image.OPEN if kind not in only_recognised | programs)


def edit_key(files: ImageFiles, row: int) -> str:
    """What tells the edit of a row from another; empty without one."""
    edit = files.edits.get(row)
    return "" if edit is None else edit.key


def _decode_row(path: str, content: cache.Content, edit: Edit | None, size: int) -> Pixels | str:
    """The pixels, or the reason why there are none."""
    if content.trouble:
        return content.trouble
    try:
        image, trouble = _open_rgb(path), ""
    except DataError as error:
        image, trouble = None, str(error).removeprefix(f"{path}: ")
    if cache.file_state(path) != content.state:
        # What was decoded is not what was hashed: storing it would answer for the wrong content ever after.
        raise DataError(f"{path} changed while it was being read: run again when nothing writes to it")
    if image is None:
        return trouble
    return _fit(image, size) if edit is None else fit_image(edit(np.array(image)), size)


def _fit(image: Image.Image, size: int) -> Pixels:
    from PIL import Image

    return np.array(image.resize((size, size), Image.Resampling.BILINEAR))


def _open_rgb(path: str | Path) -> Image.Image:
    from PIL import Image

    try:
        with Image.open(path, formats=image_formats()) as image:
            return to_rgb(image)
    except MemoryError:
        raise
    except Exception as error:  # damaged files make Pillow's decoders fail in every way there is
        raise DataError(f"{path}: {_reason(error)}") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """An image of any mode as RGB: upright, transparency over white."""
    from PIL import Image, ImageOps

    image.load()
    with contextlib.suppress(Exception):  # a broken EXIF block is no reason to lose a sound image
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "I" or image.mode == "F" or image.mode.startswith("I;16"):
        gray = _gray_to_bytes(np.asarray(image), sixteen_bit=image.format in ("PNG", "PPM"))
        image = Image.fromarray(gray)
    if image.mode == "LAB":
        from PIL import ImageCms

        profiles = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        image = ImageCms.profileToProfile(image, *profiles, outputMode="RGB") or image
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image.convert("RGB")


def _gray_to_bytes(gray: np.ndarray, *, sixteen_bit: bool) -> Pixels:
    """Gray of more than 8 bits, by the range its type or its values speak of.

    16 bits use their full range. 32-bit integers and floats do not say what white is: values within 0..1
    (floats), 0..255 or 0..65535 are taken as such, anything else is stretched from its least to its greatest.
    """
    values = np.nan_to_num(gray.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    if gray.dtype.itemsize == 2 or sixteen_bit:
        low, high = 0.0, 65535.0
    elif gray.dtype.kind == "f" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= 0 and high <= 65535:
        low, high = 0.0, 255.0 if high <= 255 else 65535.0
    scale = 255 / (high - low) if high > low else 0.0
    return np.rint((values - low) * scale).clip(0, 255).astype(np.uint8)


def _reason(error: Exception) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "not an image that Pillow can read"
    if isinstance(error, Image.DecompressionBombError):
        return f"too large to be decoded safely ({error})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
