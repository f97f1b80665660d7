"""The backbone compiled while it trains, where that was asked for: what the GPU does between convolutions becomes few
kernels. Prediction goes through the backbone as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from robustda.errors import ConfigError

__all__ = ["compile_backbone", "uncompile"]


def compile_backbone(network: nn.Module) -> None:
    """Have the backbone of a network trained by compiled code, which is made in its first step."""
    backbone = getattr(network, "backbone", None)
    if isinstance(backbone, nn.Module) and any(p.requires_grad for p in backbone.parameters()):
        backbone.forward = _Compiled(backbone)


def uncompile(network: nn.Module) -> None:
    """Take that back."""
    for layer in network.modules():
        if isinstance(layer.__dict__.get("forward"), _Compiled):
            del layer.forward


class _Compiled:
    def __init__(self, backbone: nn.Module) -> None:
        self._backbone = backbone
        self._forward = cast(Callable[[Tensor], Tensor], backbone.forward)

    def __call__(self, x: Tensor) -> Tensor:
        # Batches that are evaluated are of many sizes, and each would be compiled anew.
        if not (torch.is_grad_enabled() and self._backbone.training):
            return self._forward(x)
        try:
            return _compiled()(self._backbone, x)
        except Exception as error:
            from torch._dynamo.exc import TorchDynamoException  # takes a second to import

            if not isinstance(error, TorchDynamoException):
                raise
            reason = str(error).strip().partition("\n")[0][:200]
            raise ConfigError(
                f"the backbone could not be compiled ({reason}): is there a C compiler? Or leave --compile out"
            ) from error


@functools.cache
def _compiled() -> Callable[[nn.Module, Tensor], Tensor]:
    """One function for all backbones: a second network of the same kind finds what was made for the first."""
    return torch.compile(_forward, dynamic=False)


def _forward(backbone: nn.Module, x: Tensor) -> Tensor:
    return cast(Tensor, type(backbone).forward(backbone, x))
