"""What other statistics do to a pretrained batch norm: Office-31 images, ResNet-50 untrained but for its statistics.

    ROBUSTDA_DATA=... python benchmarks/batch_norm.py [--source amazon --target webcam --images 1000 --batches 12]

Batch norm is given the statistics of batches of 64: crops as in training or the middle of the images, of both domains
mixed or of each domain its own, and beside them those that came with the weights. Accuracy on the target, in %, of a
logistic regression on the source's right labels (features at unit length). No weight of the network changes.
"""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from robustda.data.augment import centre_crop, draw_views, resample, to_float
from robustda.data.batches import Inputs
from robustda.data.catalog import office31_images
from robustda.data.domain import Domain
from robustda.data.views import at_size
from robustda.description import describe_all
from robustda.nets import Backbone, create_backbone

SIZE, CROP, BATCH = 256, 224, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", default="amazon")
    parser.add_argument("--target", default="webcam")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=12)
    arguments = parser.parse_args()
    root = Path(os.environ["ROBUSTDA_DATA"])
    torch.manual_seed(0)
    domains = [some(office31_images(root, name), arguments.images) for name in (arguments.source, arguments.target)]
    weights = str(root / "weights" / "resnet50_v1_imagenet.safetensors")
    came = create_backbone("resnet50_v1", (CROP, CROP, 3), weights)
    print("| statistics | accuracy |\n|---|---|")
    print(f"| as they came | {100 * accuracy(domains, came, came):.1f} |", flush=True)
    for kind in ("crops", "middle"):
        mixed = measured(came, batches(domains, kind, arguments.batches))
        print(f"| of {kind}, both domains | {100 * accuracy(domains, mixed, mixed):.1f} |", flush=True)
        own = [measured(came, batches([domain], kind, arguments.batches)) for domain in domains]
        print(f"| of {kind}, each its own | {100 * accuracy(domains, *own):.1f} |", flush=True)


def some(domain: Domain, most: int) -> Domain:
    """About so many images, decoded."""
    rows = np.random.default_rng(0).permutation(len(domain))[:most]
    return at_size(domain.take(np.sort(rows)), SIZE)


def batches(domains: list[Domain], kind: str, count: int) -> Iterator[Tensor]:
    """Random batches, in equal parts of each domain."""
    for _ in range(count):
        rows = [torch.randint(len(d), (BATCH // len(domains),)).numpy() for d in domains]
        parts = [torch.from_numpy(d.x[chosen]) for d, chosen in zip(domains, rows, strict=True)]
        images = torch.cat(parts)
        if kind == "middle":
            yield to_float(centre_crop(images, CROP))
        else:
            yield resample(to_float(images), draw_views("photo", len(images), SIZE, SIZE), CROP)


@torch.no_grad()
def measured(backbone: Backbone, some_batches: Iterator[Tensor]) -> Backbone:
    """The backbone with the mean statistics of these batches."""
    found = copy.deepcopy(backbone)
    for module in found.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
    found.train()
    for batch in some_batches:
        with torch.autocast("cpu", torch.bfloat16):
            found(batch)
    return found.eval()


def accuracy(domains: list[Domain], of_source: Backbone, of_target: Backbone) -> float:
    features = []
    for domain, backbone in zip(domains, (of_source, of_target), strict=True):
        x = describe_all(backbone, Inputs(domain, torch.device("cpu"), crop=CROP), low_precision=True, keep=False)
        features.append(x / np.linalg.norm(x, axis=1, keepdims=True))
    fitted = LogisticRegression(C=10, max_iter=300).fit(features[0], domains[0].y)
    return float(fitted.score(features[1], domains[1].y))


if __name__ == "__main__":
    main()
