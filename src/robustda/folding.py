"""Batch norm that keeps its statistics, while a backbone trains on a GPU: a part of the convolution before it.

With fixed statistics, batch norm is a factor and a sum for each channel. PyTorch takes its kernels for prediction
there, whose way back is slow: a training step of ResNet-50 takes longer than with statistics that are learned. As a
factor of the convolution's weights it costs next to nothing, and all gradients, its own weights' too, are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from robustda.nets import Backbone

__all__ = ["fold", "folded", "pairs_in", "unfold"]


def fold(network: nn.Module) -> int:
    """Have the backbone of a network train so, if its batch norm keeps its statistics; returns in how many places."""
    backbone = getattr(network, "backbone", None)
    if not isinstance(backbone, Backbone) or not backbone.keeps_statistics:
        return 0
    if not any(parameter.requires_grad for parameter in backbone.parameters()):
        return 0
    pairs = list(_pairs(backbone))
    layers: list[nn.Module] = [layer for pair in pairs for layer in pair]
    ways = [way for pair in pairs for way in (_Folded(*pair), _Past(*pair))]
    for layer, way in zip(layers, ways, strict=True):
        layer.forward = way
    return len(pairs)


def unfold(network: nn.Module) -> None:
    """Take that back."""
    for layer in network.modules():
        if isinstance(layer.__dict__.get("forward"), _Folded | _Past):
            del layer.forward


def folded(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one convolution that does what both do, with the statistics that are kept."""
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    factor = norm.weight * (variance + norm.eps).rsqrt()
    return convolution.weight * factor[:, None, None, None], norm.bias - mean * factor


class _Folded:
    """A convolution with the batch norm behind it."""

    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        self._convolution, self._norm = convolution, norm
        self._forward = cast(Callable[[Tensor], Tensor], convolution.forward)

    def __call__(self, x: Tensor) -> Tensor:
        layer, norm = self._convolution, self._norm
        if not _training(layer):
            return self._forward(x)
        weight, bias = folded(layer, norm)
        return F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)


class _Past:
    """The batch norm itself, which has nothing left to do where the convolution has done it."""

    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        self._convolution = convolution
        self._forward = cast(Callable[[Tensor], Tensor], norm.forward)

    def __call__(self, x: Tensor) -> Tensor:
        return x if _training(self._convolution) else self._forward(x)


def _training(layer: nn.Module) -> bool:
    # What is evaluated goes through the layers as they are, so that a saved model says the same.
    return layer.training and torch.is_grad_enabled()


def _pairs(backbone: Backbone) -> Iterator[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Every convolution whose outcome goes into a batch norm and nowhere else; none if that cannot be found out."""
    model = getattr(backbone, "model", None)
    if not isinstance(model, nn.Module):
        return
    try:
        graph = fx.Tracer().trace(model)
    except Exception:  # a model may do anything with its inputs; it then trains as it is
        return
    layers = dict(model.named_modules())
    for convolution, norm in pairs_in(graph, layers):
        yield cast(nn.Conv2d, layers[str(convolution.target)]), cast(nn.BatchNorm2d, layers[str(norm.target)])


def pairs_in(graph: fx.Graph, layers: dict[str, nn.Module]) -> list[tuple[fx.Node, fx.Node]]:
    """The places where the outcome of a convolution goes into a batch norm and nowhere else."""
    found = []
    for node in graph.nodes:
        convolution = layers.get(str(node.target)) if node.op == "call_module" else None
        users = list(node.users)
        if type(convolution) is not nn.Conv2d or convolution.bias is not None or len(users) != 1:
            continue
        norm = layers.get(str(users[0].target)) if users[0].op == "call_module" else None
        plain = convolution.padding_mode == "zeros" and not isinstance(convolution.padding, str)
        if type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats and plain:
            found.append((node, users[0]))
    return found
