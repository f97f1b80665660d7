"""Whose features are corrupted, where that can be told: in large enough images, and with enough sound examples left."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from robustda.errors import RobustDAWarning
from robustda.noise.corruption import image_corruption, vector_corruption
from robustda.noise.evidence import enough_left

__all__ = ["SIDE", "odd_ones"]

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SIDE = 200  # pixels; the audit only shows what it finds and starts at half of it, here it decides what is learned


def odd_ones(x: np.ndarray, labels: Codes, *, images: bool, known: Flags | None = None) -> Flags:
    """Whose features are corrupted, of vectors or decoded images; nobody's, with a warning, where it cannot be told.

    What is `known` already is not looked for.
    """
    nobody = np.zeros(len(x), dtype=bool)
    if known is None and images and min(x.shape[1:3]) < SIDE:
        message = (
            f"images of {x.shape[1]} × {x.shape[2]} pixels show too little to tell corrupted ones apart ({SIDE} a "
            "side are needed): all are ranked together, as with corrupted=ignore"
        )
        warnings.warn(message, RobustDAWarning, stacklevel=2)
        return nobody
    found = (image_corruption(x) if images else vector_corruption(x)).corrupted if known is None else known
    kept = enough_left(found, labels)
    if found.any() and not kept.any():
        message = (
            f"{found.sum():,} of {len(found):,} source examples look corrupted, and the others are too few or of one "
            "class: all are ranked together, as with corrupted=ignore"
        )
        warnings.warn(message, RobustDAWarning, stacklevel=2)
    return kept
