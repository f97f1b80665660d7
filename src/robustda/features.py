"""Frozen features: what a pretrained backbone makes of images, as vectors that every method takes.

Minutes on a CPU, once; after that a run on the vectors takes seconds where one on the images takes a GPU. Image files
that were described before by the same backbone are found in the cache.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch

from robustda.data.batches import Inputs
from robustda.data.domain import Domain
from robustda.data.views import SMALL, at_size, natural_size, view
from robustda.description import describe_all
from robustda.engine import Runtime, place
from robustda.errors import DataError
from robustda.methods.base import Method
from robustda.noise.corruption import image_corruption
from robustda.noise.soundness import SIDE

__all__ = ["extract_features"]


@torch.no_grad()
def extract_features(
    domain: Domain,
    *,
    backbone: str | torch.nn.Module = "auto",
    weights: str = "auto",
    image_size: int = 0,
    pooling: Literal["auto", "mean", "peaks"] = "auto",
    batch_size: int = 0,
    device: str = "auto",
    precision: str = "float32",
    mirror: bool | None = None,
    find_corrupted: bool = True,
    progress: bool = False,
    **decoding: Any,
) -> Domain:
    """The domain with its images replaced by the backbone's features of their centre; ids, labels and names stay.

    `backbone`, `weights`, `image_size` and `pooling` are those of a method that keeps its backbone frozen, `decoding`
    what `Domain.decoded` takes: cache_dir, strict. Images that cannot be read are left out, with a warning. With
    `mirror` an image's features are the mean of its own and its mirror image's; if that is left open, photographs are
    mirrored and images of up to 64 pixels are not. `find_corrupted` marks images that look blurred or noisy, since
    their features will hardly show it: methods and the audit go by `Domain.corrupted` then. `precision` is that of the
    backbone: float32, bfloat16, or auto, which is bfloat16 on a CPU that is quicker so, as for features that methods
    make themselves. With a `batch_size` of 0 it is what suits the device.
    """
    if domain.kind != "images":
        raise DataError(f"{domain.called} holds vectors already: give a folder or a table of images")
    runtime = Runtime(device=device, precision=precision)  # type: ignore[arg-type]
    size = image_size or natural_size(domain)
    domain = at_size(domain, size, progress=progress, **decoding)
    inputs = Inputs(domain, runtime.torch_device(), crop=view(size)[1])
    mirror = size > SMALL if mirror is None else mirror
    psi = Method(backbone=backbone, weights=weights, pooling=pooling).make_backbone(inputs.example_shape).eval()
    if pooling == "auto" and psi.pretrained:
        psi.pool_peaks()
    place(psi, inputs.device)
    quick = precision == "bfloat16" or (precision == "auto" and runtime.bfloat16_products(inputs.device))
    how = {"low_precision": quick, "mirrored": mirror, "batch_size": batch_size}
    with runtime.limits():
        features = describe_all(psi, inputs, progress=progress, **how)  # type: ignore[arg-type]
    marks = domain.corrupted
    if marks is None and find_corrupted and size >= SIDE:
        marks = image_corruption(np.asarray(domain.x)).corrupted
    return replace(domain, x=features, corrupted=marks)
