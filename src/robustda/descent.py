"""Stochastic gradient descent as all methods do it: PyTorch's, and for wide layers on a CPU as suits its cache.

There an update is bound by memory. The gradient of a layer with products in bfloat16 (see `robustda.layers.Wide`) is
bfloat16 too; to turn all of it into float32, then to update all weights, then to make their bfloat16 copy for the next
forward pass moves every number between processor and memory three times. Done block by block it moves once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

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
        self._all: list[nn.Parameter] = [p for group in self.param_groups for p in group["params"]]
        wide = {id(m.weight): m for m in network.modules() if isinstance(m, Wide) and m.low_precision and momentum}
        # PyTorch's own step sorts parameters by device and kind every time: on a CPU that takes as long as the update.
        self._sorted = device.type == "cpu" and all(p.dtype == torch.float32 for p in self._all)
        self._parts = [
            (
                [_Blocks(wide[id(p)]) for p in group["params"] if id(p) in wide],
                [p for p in group["params"] if id(p) not in wide],
            )
            for group in self.param_groups
        ]

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """As `descend`; PyTorch wraps what has this name into hooks and a record for its profiler."""
        self.descend()

    @torch.no_grad()
    def descend(self) -> None:
        """Update all parameters that have a gradient; that of wide layers is used up."""
        for group, (wide, others) in zip(self.param_groups, self._parts, strict=True):
            those = [p for p in others if p.grad is not None] if self._sorted else []
            if not (wide or those):
                continue  # on a GPU there is nothing else to do, and its learning rate is not waited for
            settings = _settings(group)
            for blocks in wide:
                weight = blocks.layer.weight
                if weight.grad is not None:
                    blocks.update(weight.grad, self._momentum(weight), settings)
                    weight.grad = None
            buffers = [self._momentum(p) for p in those] if group["momentum"] else []
            if those:
                torch._fused_sgd_(those, [p.grad for p in those], buffers, **settings)
        if not self._sorted:
            super().step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        if not set_to_none:
            super().zero_grad(set_to_none)
            return
        for parameter in self._all:
            parameter.grad = None

    def _momentum(self, parameter: Tensor) -> Tensor:
        """A parameter's momentum, which begins as zeros: with the first gradient it becomes just that."""
        state = self.state[parameter]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return cast(Tensor, state["momentum_buffer"])


class _Blocks:
    """The weights of a wide layer, their momentum and their copy in bfloat16, cut into blocks once for all steps."""

    def __init__(self, layer: Wide) -> None:
        self.layer = layer
        self._low = layer.low_weight()
        self._rows = max(1, _BLOCK // layer.weight.shape[1])
        self._cut: list[tuple[Tensor, ...]] = []
        self._of: tuple[int, Tensor | None] = 0, None
        layer.keep(self._low)
        if hasattr(layer.weight, "grad_dtype"):  # before PyTorch 2.10 gradients are cast as soon as they are made
            layer.weight.grad_dtype = torch.bfloat16

    def update(self, gradient: Tensor, momentum: Tensor, settings: dict[str, Any]) -> None:
        """Do a step of gradient descent, block by block."""
        weight = self.layer.weight
        if self._of[0] != weight.data_ptr() or self._of[1] is not momentum:  # a run that is taken up brings its own
            self._of = weight.data_ptr(), momentum
            whole = (weight.detach(), momentum, self._low)
            self._cut = list(zip(*(torch.split(tensor, self._rows) for tensor in whole), strict=True))
        for (part, buffer, copy), slope in zip(self._cut, torch.split(gradient, self._rows), strict=True):
            torch._fused_sgd_([part], [slope.float()], [buffer], **settings)
            copy.copy_(part)
        self.layer.keep(self._low)


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """Those of a group as the function wants them that PyTorch's SGD itself calls once it has sorted its parameters."""
    names = ("weight_decay", "momentum", "dampening", "nesterov", "maximize")
    return {name: group[name] for name in names} | {"lr": group["lr"].item(), "is_first_step": False}
