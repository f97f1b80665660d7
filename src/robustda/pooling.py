"""How the last map of a convolutional backbone becomes one vector: the mean over its area, or its peaks.

The mean gives a white background as much of a say as the thing in front of it. The generalized mean of the third power,

    g_c = (mean over the area of x_c³)^⅓,

lies between mean and maximum: Radenović, Tolias and Chum, Fine-tuning CNN Image Retrieval with No Human Annotation
(TPAMI 2019), whose learned powers are about three. It needs maps that are cut off below zero. The vector is then
brought to the length that the means' would have had, so that learning rates that suit these suit it, too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

__all__ = ["POWER", "Peaks", "generalized_mean", "pool_peaks"]

POWER = 3.0
_LEAST = 1e-6  # of what is raised to a power: a root of nothing has no slope
_CUT_OFF = (nn.ReLU, nn.ReLU6)
_CUT_OFF_BY = (F.relu, F.relu6, torch.relu, torch.relu_)


def generalized_mean(x: Tensor, power: float = POWER) -> Tensor:
    """Of maps (B, C, H, W) without negative values over their area: (B, C, 1, 1).

    >>> x = torch.tensor([[[[0.0, 0.0], [0.0, 2.0]]]])
    >>> round(float(generalized_mean(x)), 2), round(float(generalized_mean(x, 1)), 2)
    (1.26, 0.5)
    """
    return x.clamp(min=_LEAST).pow(power).mean(dim=(2, 3), keepdim=True).pow(1 / power)


class Peaks(nn.Module):
    """In place of a mean over the area: the generalized mean, at the length of the mean; flat, or maps of one point."""

    def __init__(self, *, flatten: bool = True) -> None:
        super().__init__()
        self.flatten = flatten

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        peaks, mean = generalized_mean(x), x.mean(dim=(2, 3), keepdim=True)
        found: Tensor = F.normalize(peaks) * torch.linalg.vector_norm(mean, dim=1, keepdim=True)
        return found.flatten(1) if self.flatten else found

    def extra_repr(self) -> str:
        return f"power={POWER:g}, flatten={self.flatten}"


def pool_peaks(model: nn.Module) -> bool:
    """Have a timm model pool by the generalized mean in place of the mean, if its last map is cut off below zero.

    False where it is not, or where the model has no one place at which it takes the mean: it stays as it was.
    """
    from timm.layers.adaptive_avgmax_pool import SelectAdaptivePool2d

    if any(isinstance(layer, Peaks) for layer in model.modules()):
        return True
    places = [name for name, layer in model.named_modules() if isinstance(layer, SelectAdaptivePool2d)]
    if len(places) != 1:
        return False
    pool = model.get_submodule(places[0])
    if pool.pool_type != "avg" or not _cut_off_before(model, places[0]):
        return False
    parent, _, name = places[0].rpartition(".")
    flatten = not isinstance(pool.flatten, nn.Identity)
    setattr(model.get_submodule(parent), name, Peaks(flatten=flatten))
    return True


class _Tracer(fx.Tracer):
    """Looks into everything but the pooling itself."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        from timm.layers.adaptive_avgmax_pool import SelectAdaptivePool2d

        return isinstance(m, SelectAdaptivePool2d) or super().is_leaf_module(m, module_qualified_name)


def _cut_off_before(model: nn.Module, place: str) -> bool:
    """Whether what goes into the pooling comes straight from a ReLU, by the model's graph."""
    try:
        graph = _Tracer().trace(model)
    except Exception:  # a model may do anything with its inputs
        return False
    pools = [node for node in graph.nodes if node.op == "call_module" and node.target == place]
    if len(pools) != 1:
        return False
    before: Any = pools[0].args[0]
    while isinstance(before, fx.Node) and _does_nothing(before, model):
        before = before.args[0]
    if not isinstance(before, fx.Node):
        return False
    if before.op == "call_module":
        return isinstance(model.get_submodule(str(before.target)), _CUT_OFF)
    return before.op == "call_function" and before.target in _CUT_OFF_BY


def _does_nothing(node: fx.Node, model: nn.Module) -> bool:
    return node.op == "call_module" and isinstance(model.get_submodule(str(node.target)), nn.Identity | nn.Dropout)
