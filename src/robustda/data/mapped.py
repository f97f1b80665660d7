"""Arrays that stay on the disk: an .npy file is mapped and never read whole.

Training draws a batch of rows at a time, so that the vectors of a domain may be larger than the memory. Labels and ids,
of which there is one an example, are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from robustda.data.readers import UNREADABLE, Labels, Parts, check_switch
from robustda.errors import DataError
from robustda.reading import memory_size

__all__ = ["companions", "read_npy"]

_BESIDE = ("y", "ids", "classes", "features")


def companions(path: Path) -> dict[str, Path]:
    """Where the labels and the rest of an .npy file lie: y.npy beside x.npy, web_y.npy beside web.npy or web_x.npy."""
    stem = path.stem
    start = stem[:-1] if stem == "x" or stem.endswith("_x") else f"{stem}_"
    return {name: path.with_name(f"{start}{name}{path.suffix}") for name in _BESIDE}


def read_npy(path: Path, labels: Labels) -> Parts:
    """The inputs mapped from an .npy file; labels, ids, classes and features from those beside it that are there."""
    check_switch(labels)
    x = _opened(path)
    in_place = (x.ndim, x.dtype.name) == (2, "float32") or (x.dtype == np.uint8 and x.shape[3:] == (3,))
    if not in_place and 4 * x.size > memory_size() // 2:
        raise DataError(
            f"{path} is too large for the memory as {x.dtype} {x.shape}: save it as float32 (m, d), or as bytes "
            "(m, height, width, 3), which are read in place"
        )
    wanted = _BESIDE if labels != "ignore" else ("ids", "features")
    beside = companions(path)
    found = {name: _whole(beside[name]) for name in wanted if beside[name].is_file()}
    if labels == "required" and "y" not in found:
        raise DataError(f"{path} has no labels: save them as {beside['y'].name} beside it")
    features = tuple(str(name) for name in found.get("features", ()))
    return Parts(x, found.get("y"), found.get("ids"), found.get("classes"), features)


def _whole(path: Path) -> np.ndarray:
    mapped = _opened(path)
    if mapped.nbytes > memory_size() // 2:
        raise DataError(f"{path} has {mapped.nbytes:,} bytes, more than half of the memory: is it what it should be?")
    return np.array(mapped)


def _opened(path: Path) -> np.ndarray:
    try:
        found: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except UNREADABLE as error:
        # NumPy takes what it does not know for pickled objects, and tells how to run them.
        objects = "Python objects" in str(error) or "pickle" in str(error)
        reason = "Python objects, or no array at all" if objects else " ".join(str(error).split())[:200]
        raise DataError(f"{path} cannot be read as an .npy file ({reason}): save it again with np.save") from error
    if not isinstance(found, np.ndarray):
        found.close()
        raise DataError(f"{path} is an archive of arrays: give it a name that ends in .npz")
    return found
