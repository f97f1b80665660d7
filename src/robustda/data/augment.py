"""Augmentation of a whole batch at once, on its device: one affine sampling, nothing per example in Python.

    photo   random resized crop (area 8 to 100 %, ratio 3/4 to 4/3) and horizontal flip, as for ImageNet
    shift   moved by up to an eighth of the side: for small images whose mirror image means something else
    none    as it is

Randomness comes from the default generator of the batch's device, which the training loop seeds at each step.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["Augmentation", "centre_crop", "crop_boxes", "photo", "resample", "shift", "to_float"]

Augmentation = Literal["photo", "shift", "none"]

_SCALE = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)
_ATTEMPTS = 10


def to_float(images: Tensor) -> Tensor:
    """Bytes (B, H, W, 3) to floats (B, 3, H, W) in [0, 1]."""
    return images.permute(0, 3, 1, 2) * (1 / 255)  # one pass: the product with a float is a float


def photo(images: Tensor, size: int) -> Tensor:
    """Random resized crop to `size` and random flip of float images (B, 3, H, W)."""
    height, width = images.shape[2:]
    boxes = crop_boxes(len(images), height, width, images.device)
    flip = torch.rand(len(images), device=images.device) < 0.5
    return resample(images, boxes, flip, size)


def shift(images: Tensor) -> Tensor:
    """Move each image by up to an eighth of its side, with the border repeated at the edge."""
    height, width = images.shape[2:]
    moves = torch.rand(len(images), 2, device=images.device) * 2 - 1
    top, left = moves[:, 0] * height / 8, moves[:, 1] * width / 8
    boxes = torch.stack([top, left, torch.full_like(top, height), torch.full_like(left, width)], dim=1)
    return resample(images, boxes, torch.zeros_like(top, dtype=torch.bool), height)


def centre_crop(images: Tensor, size: int) -> Tensor:
    """The middle `size` × `size` of images (B, H, W, 3)."""
    top, left = (images.shape[1] - size) // 2, (images.shape[2] - size) // 2
    return images[:, top : top + size, left : left + size]


def crop_boxes(count: int, height: int, width: int, device: torch.device) -> Tensor:
    """Random boxes (top, left, height, width), distributed as torchvision's RandomResizedCrop draws them.

    Each example draws ten candidates at once and takes the first that fits, or the whole image (cut to the allowed
    ratios) if none does.
    """
    shape = (count, _ATTEMPTS)
    area = height * width * (_SCALE[0] + (_SCALE[1] - _SCALE[0]) * torch.rand(shape, device=device))
    low, high = math.log(_RATIO[0]), math.log(_RATIO[1])
    ratio = torch.exp(low + (high - low) * torch.rand(shape, device=device))
    widths, heights = torch.round(torch.sqrt(area * ratio)), torch.round(torch.sqrt(area / ratio))
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    any_fits = fits.any(dim=1)
    whole = min(width, round(height * _RATIO[1])), min(height, round(width / _RATIO[0]))
    box_width = torch.where(any_fits, widths.gather(1, first)[:, 0], float(whole[0]))
    box_height = torch.where(any_fits, heights.gather(1, first)[:, 0], float(whole[1]))
    place = torch.rand(count, 2, device=device)
    top = torch.where(any_fits, torch.floor(place[:, 0] * (height - box_height + 1)), (height - box_height) / 2)
    left = torch.where(any_fits, torch.floor(place[:, 1] * (width - box_width + 1)), (width - box_width) / 2)
    return torch.stack([top, left, box_height, box_width], dim=1)


def resample(images: Tensor, boxes: Tensor, flip: Tensor, size: int) -> Tensor:
    """Cut out the boxes and bring them to `size` × `size`, bilinearly; mirrored where `flip` is set."""
    height, width = images.shape[2:]
    top, left, box_height, box_width = boxes.unbind(1)
    theta = torch.zeros(len(images), 2, 3, device=images.device)
    # grid_sample's coordinates run from −1 to 1 over the whole image; a box is a scaling and a translation of that.
    theta[:, 0, 0] = torch.where(flip, -box_width, box_width) / width
    theta[:, 1, 1] = box_height / height
    theta[:, 0, 2] = (2 * left + box_width) / width - 1
    theta[:, 1, 2] = (2 * top + box_height) / height - 1
    grid = F.affine_grid(theta, [len(images), 3, size, size], align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
