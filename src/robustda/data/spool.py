"""Images that come as bytes or arrays and not as files are put into the cache folder as files, once, by content.

From there on they are like all others: decoded in parallel, edited by noise, shown on the audit page.

<cache>/files/<first two digits>/<digest><ending>
"""

from __future__ import annotations

import hashlib
import io
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from robustda.data.cache import cache_folder
from robustda.data.images import ImageFiles
from robustda.errors import DataError

__all__ = ["gather", "keep_file", "keep_pixels"]

_IN_MEMORY = 1 << 29  # arrays of one shape stay in memory up to so many bytes


def keep_file(content: bytes, ending: str, cache_dir: str | Path | None = None) -> str:
    """The path of a file with this content."""
    folder = cache_folder(cache_dir) / "files"
    digest = hashlib.blake2b(content, digest_size=20).hexdigest()
    path = folder / digest[:2] / f"{digest}{ending}"
    if not (path.is_file() and path.stat().st_size == len(content)):
        own = path.with_name(f".{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            own.write_bytes(content)
            os.replace(own, path)
        except OSError as error:
            raise DataError(
                f"cannot write the image cache in {folder} ({error.strerror or error}): make room there, "
                "or set ROBUSTDA_CACHE to a folder with room that you may write to"
            ) from error
        finally:
            own.unlink(missing_ok=True)
    return str(path.absolute())


def keep_pixels(pixels: np.ndarray, cache_dir: str | Path | None = None) -> str:
    """The path of a PNG file with these RGB bytes."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return keep_file(buffer.getvalue(), ".png", cache_dir)


def gather(images: Iterable[np.ndarray | str], cache_dir: str | Path | None = None) -> np.ndarray | ImageFiles:
    """RGB bytes (height, width, 3) or paths: one array if they are few and of one shape, files if not."""
    arrays: list[np.ndarray] = []
    paths: list[str] = []
    held = 0
    for image in images:
        alike = not paths and not isinstance(image, str) and (not arrays or image.shape == arrays[0].shape)
        if alike and held + image.nbytes <= _IN_MEMORY:  # type: ignore[union-attr]
            arrays.append(image)  # type: ignore[arg-type]
            held += image.nbytes  # type: ignore[union-attr]
            continue
        paths += [keep_pixels(array, cache_dir) for array in arrays]
        arrays.clear()
        paths.append(image if isinstance(image, str) else keep_pixels(image, cache_dir))
    return ImageFiles(tuple(paths)) if paths else np.stack(arrays)
