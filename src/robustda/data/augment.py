"""Augmentation of a whole batch at once, on its device: one affine sampling, nothing per example in Python.

    photo   random resized crop (area 8 to 100 %, ratio 3/4 to 4/3) and horizontal flip, as for ImageNet
    shift   moved by up to an eighth of the side: for small images whose mirror image means something else
    none    as it is

What is random about a view is drawn first, on the host, as an affine map (2, 3) for each example: the training loop
draws those of many steps at once, and they are the same on every device.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = [
    "Augmentation",
    "box_views",
    "centre_crop",
    "crop_boxes",
    "draw_views",
    "resample",
    "to_float",
]

Augmentation = Literal["photo", "shift", "none"]

_SCALE = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)
_ATTEMPTS = 10


def to_float(images: Tensor) -> Tensor:
    """Bytes (B, H, W, 3) to floats (B, 3, H, W) in [0, 1]."""
    return images.permute(0, 3, 1, 2) * (1 / 255)  # one pass: the product with a float is a float


def draw_views(
    augmentation: Augmentation, count: int, height: int, width: int, generator: torch.Generator | None = None
) -> Tensor:
    """A random view (2, 3) for each of so many images of that size, to be looked at by `resample`."""
    if augmentation == "photo":
        boxes = crop_boxes(count, height, width, generator)
        return box_views(boxes, torch.rand(count, generator=generator) < 0.5, height, width)
    moves = torch.rand(count, 2, generator=generator) * 2 - 1 if augmentation == "shift" else torch.zeros(count, 2)
    top, left = moves[:, 0] * height / 8, moves[:, 1] * width / 8
    boxes = torch.stack([top, left, torch.full_like(top, height), torch.full_like(left, width)], dim=1)
    return box_views(boxes, torch.zeros(count, dtype=torch.bool), height, width)


def centre_crop(images: Tensor, size: int) -> Tensor:
    """The middle `size` × `size` of images (B, H, W, 3)."""
    top, left = (images.shape[1] - size) // 2, (images.shape[2] - size) // 2
    return images[:, top : top + size, left : left + size]


def crop_boxes(count: int, height: int, width: int, generator: torch.Generator | None = None) -> Tensor:
    """Random boxes (top, left, height, width), distributed as torchvision's RandomResizedCrop draws them.

    Each example draws ten candidates at once and takes the first that fits, or the whole image (cut to the allowed
    ratios) if none does.
    """
    shape = (count, _ATTEMPTS)
    area = height * width * (_SCALE[0] + (_SCALE[1] - _SCALE[0]) * torch.rand(shape, generator=generator))
    low, high = math.log(_RATIO[0]), math.log(_RATIO[1])
    ratio = torch.exp(low + (high - low) * torch.rand(shape, generator=generator))
    widths, heights = torch.round(torch.sqrt(area * ratio)), torch.round(torch.sqrt(area / ratio))
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    any_fits = fits.any(dim=1)
    whole = min(width, round(height * _RATIO[1])), min(height, round(width / _RATIO[0]))
    box_width = torch.where(any_fits, widths.gather(1, first)[:, 0], float(whole[0]))
    box_height = torch.where(any_fits, heights.gather(1, first)[:, 0], float(whole[1]))
    place = torch.rand(count, 2, generator=generator)
    top = torch.where(any_fits, torch.floor(place[:, 0] * (height - box_height + 1)), (height - box_height) / 2)
    left = torch.where(any_fits, torch.floor(place[:, 1] * (width - box_width + 1)), (width - box_width) / 2)
    return torch.stack([top, left, box_height, box_width], dim=1)


def box_views(boxes: Tensor, flip: Tensor, height: int, width: int) -> Tensor:
    """Boxes in images of that size as affine maps; mirrored where `flip` is set."""
    top, left, box_height, box_width = boxes.unbind(1)
    views = torch.zeros(len(boxes), 2, 3)
    # grid_sample's coordinates run from −1 to 1 over the whole image; a box is a scaling and a translation of that.
    views[:, 0, 0] = torch.where(flip, -box_width, box_width) / width
    views[:, 1, 1] = box_height / height
    views[:, 0, 2] = (2 * left + box_width) / width - 1
    views[:, 1, 2] = (2 * top + box_height) / height - 1
    return views


def resample(images: Tensor, views: Tensor, size: int) -> Tensor:
    """Each image (B, 3, H, W) as its view shows it, size × size, bilinearly; beyond the edge the border is repeated."""
    # What affine_grid would give for maps that do not turn the image, in two sums instead of a product of matrices that
    # took longer on a GPU than all the rest of this.
    places = (torch.arange(size, device=images.device) * 2 + 1) / size - 1
    x = views[:, 0, 0, None] * places + views[:, 0, 2, None]
    y = views[:, 1, 1, None] * places + views[:, 1, 2, None]
    shape = (len(images), size, size)
    grid = torch.stack([x[:, None, :].expand(shape), y[:, :, None].expand(shape)], dim=3)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
