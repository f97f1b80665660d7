"""A batch whose activations do not fit into memory: the backbone in several pieces, the loss still of the whole batch.

Adding up the gradients of small batches would change what is learned: kernel discrepancies and the choice of Q' need
the batch as a whole. Here only the backbone sees pieces. Its activations are dropped and computed again on the way
back, piece by piece; the features, which are small, are kept, and all that follows sees the whole batch. The gradient
is that of the whole batch, but for batch norm inside the backbone, which has each piece's own statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

__all__ = ["in_one", "in_pieces"]


def in_pieces(network: nn.Module, count: int) -> None:
    """Have the backbone of a network train on so many pieces of each batch."""
    backbone = getattr(network, "backbone", None)
    if count > 1 and isinstance(backbone, nn.Module) and any(p.requires_grad for p in backbone.parameters()):
        backbone.forward = _Pieces(backbone, count)


def in_one(network: nn.Module) -> None:
    """Take that back."""
    for layer in network.modules():
        if isinstance(layer.__dict__.get("forward"), _Pieces):
            del layer.forward


class _Pieces:
    def __init__(self, backbone: nn.Module, count: int) -> None:
        self._backbone, self._count = backbone, count
        self._forward = cast(Callable[[Tensor], Tensor], backbone.forward)

    def __call__(self, x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and self._backbone.training):
            return self._forward(x)
        pieces = [
            checkpoint(self._forward, piece, use_reentrant=False, context_fn=self._contexts)
            for piece in x.tensor_split(min(self._count, len(x)))
        ]
        return torch.cat(pieces)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), self._again()

    @contextmanager
    def _again(self) -> Iterator[None]:
        """Running averages have seen the piece already when it is computed again."""
        norms = [layer for layer in self._backbone.modules() if isinstance(layer, _BatchNorm)]
        before = [(layer.momentum, layer.num_batches_tracked) for layer in norms]
        for layer in norms:
            layer.momentum = 0.0
            layer.num_batches_tracked = None if layer.num_batches_tracked is None else layer.num_batches_tracked.clone()
        try:
            yield
        finally:
            for layer, (momentum, tracked) in zip(norms, before, strict=True):
                layer.momentum, layer.num_batches_tracked = momentum, tracked
