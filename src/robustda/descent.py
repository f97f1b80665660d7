"""Stochastic gradient descent as all methods do it: PyTorch's, and for wide layers on a CPU as suits its cache.

There an update is bound by memory. The gradient of a layer with products in bfloat16 (see `robustda.layers.Wide`) is
bfloat16 too; to turn all of it into float32, then to update all weights, then to make their bfloat16 copy for the next
forward pass moves every number between processor and memory three times. Done block by block it moves once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from robustda.layers import Wide

__all__ = ["Descent"]

_BLOCK = 2**18  # weights at a time: their gradient, momentum and copies fit into the cache of a core


class Descent(torch.optim.SGD):
    """Fused SGD with Nesterov momentum and an L2 penalty; every group has a learning rate in a tensor of its own."""

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        network: nn.Module,
        *,
        device: torch.device,
        momentum: float,
        weight_decay: float,
    ) -> None:
        super().__init__(
            [dict(group, lr=torch.tensor(0.0, device=device)) for group in groups],
            lr=0.0,
            momentum=momentum,
            nesterov=momentum > 0,
            weight_decay=weight_decay,
            fused=True,
        )
        wide = {id(m.weight): m for m in network.modules() if isinstance(m, Wide) and m.low_precision}
        self._wide = [
            (wide[id(p)], group) for group in self.param_groups for p in group["params"] if momentum and id(p) in wide
        ]
        for layer, _ in self._wide:
            layer.keep(layer.low_weight())
            if hasattr(layer.weight, "grad_dtype"):  # before PyTorch 2.10 gradients are cast as soon as they are made
                layer.weight.grad_dtype = torch.bfloat16

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient; that of wide layers is used up."""
        for layer, group in self._wide:
            if layer.weight.grad is not None:
                self._update(layer, layer.weight.grad, group)
                layer.weight.grad = None
        super().step(closure)

    def _update(self, layer: Wide, gradient: Tensor, group: dict[str, Any]) -> None:
        weight, low, state = layer.weight, layer.low_weight(), self.state[layer.weight]
        first = state.get("momentum_buffer") is None
        if first:
            state["momentum_buffer"] = torch.empty_like(weight)
        how = {name: group[name] for name in ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")}
        rows = max(1, _BLOCK // weight.shape[1])
        whole = (weight.detach(), gradient, state["momentum_buffer"], low)
        for part, slope, buffer, copy in zip(*(tensor.split(rows) for tensor in whole), strict=True):
            # What PyTorch's SGD itself calls once it has sorted its parameters, which takes as long as a block.
            torch._fused_sgd_([part], [slope.float()], [buffer], is_first_step=first, **how)
            copy.copy_(part)
        layer.keep(low)
