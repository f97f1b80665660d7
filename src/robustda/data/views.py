"""The size that images are brought to, and the part of them that a network sees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from torch import Tensor

from robustda.data.augment import Augmentation
from robustda.data.domain import Domain
from robustda.data.images import fit_image

__all__ = ["SMALL", "at_size", "natural_size", "two_views", "view"]

SMALL = 64  # images of up to this many pixels are used at their own size, with small networks
_FULL = 256


def at_size(domain: Domain, size: int, **decoding: Any) -> Domain:
    """The domain with its images decoded, size × size."""
    domain = domain.decoded(size, **decoding)
    if domain.shape[:2] == (size, size):
        return domain
    return dataclasses.replace(domain, x=np.stack([fit_image(image, size) for image in np.asarray(domain.x)]))


def natural_size(source: Domain) -> int:
    """The side that suits these images: their own if they are small, else 256."""
    size = source.natural_size()
    return size if size <= SMALL else _FULL


def view(size: int, augmentation: Augmentation | Literal["auto"] = "none") -> tuple[Augmentation, int | None]:
    """How images of this size are augmented, and the side that the network sees; 0 stands for vectors."""
    if size == 0:
        return "none", None
    if augmentation == "auto":
        augmentation = "photo" if size > SMALL else "shift"
    return augmentation, round(size * 7 / 8) if size > SMALL else size


def two_views(describe: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """The mean of what is said of images (B, 3, H, W) and of their mirror images: left and right mean nothing."""
    return (describe(images) + describe(images.flip(-1))) / 2
