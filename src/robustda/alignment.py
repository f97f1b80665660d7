"""Losses that bring the two domains together, as pure functions of tensors: kernel discrepancies and domain games.

They belong to the rivals (DAN, RTN, DANN, ADDA, TCL); the paper's own are in `losses`. As there, shapes are static: who
takes part is a weight, never a slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from robustda.losses import masked_mean

__all__ = [
    "Estimator",
    "domain_accuracy",
    "domain_loss",
    "fused_mmd",
    "multi_kernel_mmd",
    "transferable",
]

Estimator = Literal["unbiased", "biased"]

# Bandwidths of the Gaussian kernels, σ² = 2^k times the mean squared distance (DAN's family).
_OCTAVES = (-3, -2, -1, 0, 1)
# Where all points coincide the mean distance is zero and every kernel is 1 whatever the bandwidth; the floor only
# keeps 0/0 away, and is large enough for its inverse, which the gradient holds, to be finite in float32.
_LEAST_BANDWIDTH = 1e-12
_LARGE = 1e6  # features beyond are scaled down: their squares add up to numbers that float32 does not have


def multi_kernel_mmd(source: Tensor, target: Tensor, *, estimator: Estimator = "unbiased") -> Tensor:
    """MK-MMD²: the squared maximum mean discrepancy under the sum of five Gaussian kernels (DAN, eqs. 2 to 5).

    k(x, y) = Σ_j exp(−‖x − y‖² / 2σ_j²) with σ_j² = 2^j·(mean squared distance of all pairs), j = −3..1; the bandwidths
    are constants to the gradient.

    ``unbiased`` is the U-statistic: it leaves out the pairs (i, i) of a domain with itself, is right on average for any
    number of examples, and is therefore **negative** about half of the time when the domains agree; a curve of it that
    dips below zero is no error. ``biased`` is the V-statistic, never below zero and never zero for different samples.
    Neither is ever NaN: identical points have distance 0 and kernel 1, and a domain of one example, which has no other
    pair than itself, is compared with itself.
    """
    joint = _tame(torch.cat([source, target]))
    # Distances do not care about the origin; taking it amid the points spares float32 the cancellation.
    joint = joint - joint.detach().mean(dim=0)
    return _mmd(_squared_distances([joint]), len(source), estimator)


def fused_mmd(source: Sequence[Tensor], target: Sequence[Tensor], *, estimator: Estimator = "unbiased") -> Tensor:
    """MK-MMD² between tensor products of several layers, z ⊗ f(z) (RTN, eq. 6), without ever forming them.

    The inner product of two tensor products is the product of the inner products, ⟨a⊗b, c⊗d⟩ = ⟨a, c⟩·⟨b, d⟩, so the
    distances follow from one Gram matrix per layer, exactly: no random projection is needed.
    """
    joint = [_tame(torch.cat(pair)) for pair in zip(source, target, strict=True)]
    return _mmd(_squared_distances(joint), len(source[0]), estimator)


def domain_loss(source: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of a domain discriminator: mean of its two domains' means; logits say "source".

    `weights` choose among the source examples. A discriminator that knows nothing scores log 2.
    """
    source, target = (logits.to(torch.promote_types(logits.dtype, torch.float32)) for logits in (source, target))
    losses = F.softplus(-source)
    of_source = losses.mean() if weights is None else masked_mean(losses, weights)
    return (of_source + F.softplus(target).mean()) / 2


def domain_accuracy(source: Tensor, target: Tensor) -> Tensor:
    """Share of the examples whose domain is told right, the domains counted alike: .5 is confusion, 1 a lost game."""
    return ((source > 0).mean(dtype=torch.float32) + (target <= 0).mean(dtype=torch.float32)) / 2


def transferable(
    losses: Tensor,
    domain_logits: Tensor,
    *,
    class_threshold: float,
    domain_threshold: float,
    domain_weight: float,
) -> Tensor:
    """TCL's curriculum: a 0/1 weight for each source example that is both easily classified and like the target.

    w = 1[ℓ_y + λ_d·(−log(1 − d)) < −log θ_y − λ_d·log(1 − θ_d)], with d the probability of being from the source.

    >>> easy_and_hard = torch.tensor([0.1, 3.0])
    >>> args = {"class_threshold": 0.3, "domain_threshold": 0.5, "domain_weight": 0.1}
    >>> transferable(easy_and_hard, torch.zeros(2), **args).tolist()
    [1.0, 0.0]
    """
    bound = -math.log(class_threshold) - domain_weight * math.log1p(-domain_threshold)
    score = losses.detach() + domain_weight * F.softplus(domain_logits.detach())  # softplus is −log(1 − d)
    return (score < bound).to(losses.dtype)


def _tame(points: Tensor) -> Tensor:
    """Points whose squared distances float32 can hold. The bandwidths follow the distances: scaling changes nothing."""
    wide = points.to(torch.promote_types(points.dtype, torch.float32))
    largest = wide.detach().abs().amax()
    return wide / torch.where(largest > _LARGE, largest, torch.ones_like(largest))


def _squared_distances(layers: Sequence[Tensor]) -> Tensor:
    """‖x_i − x_j‖² between the tensor products of the layers, of which there may be one; zero on the diagonal."""
    gram = torch.ones((), dtype=layers[0].dtype, device=layers[0].device)
    for layer in layers:
        gram = gram * (layer @ layer.T)
    norms = gram.diagonal()
    distances = (norms[:, None] + norms[None, :] - 2 * gram).clamp(min=0)
    return distances * (1 - torch.eye(len(gram), dtype=gram.dtype, device=gram.device))


def _mmd(distances: Tensor, count: int, estimator: Estimator) -> Tensor:
    """MK-MMD² from the joint distances; the first `count` examples are the source's."""
    total = len(distances)
    mean = distances.detach().sum() / max(1, total * (total - 1))
    kernel = torch.zeros_like(distances)
    for octave in _OCTAVES:
        kernel = kernel + torch.exp(-distances / (2 * 2.0**octave * mean).clamp(min=_LEAST_BANDWIDTH))
    source, target = _within(kernel[:count, :count], estimator), _within(kernel[count:, count:], estimator)
    return source + target - 2 * kernel[:count, count:].mean()


def _within(kernel: Tensor, estimator: Estimator) -> Tensor:
    """Mean of the kernel over the pairs of one domain."""
    size = len(kernel)
    if estimator == "biased":
        return kernel.mean()
    if size == 1:
        return kernel.sum()
    return (kernel.sum() - kernel.diagonal().sum()) / (size * (size - 1))
