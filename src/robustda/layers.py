"""Layers that the networks of all methods share, made with an eye on what a CPU does best."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["Dropout", "Wide", "reverse_gradient", "times"]

_WIDE = 2**18  # weights of a layer from which on its products are worth some care on a CPU


class Wide(nn.Linear):
    """A linear layer whose products, while it trains on a CPU that has instructions for it, may be of bfloat16 numbers.

    Weights, sums and activations stay float32, and so does prediction. Where the matrix products of the heads are the
    whole cost, on vectors, a training step takes two thirds of the time.
    """

    low_precision = False
    kept: tuple[Tensor, int, int] | None = None
    """the weights in bfloat16, as an optimiser that keeps them up to date left them; then where the weights that they
    were made of lie, and how often these had been changed"""

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.is_wide and x.device.type == "cpu" and x.dim() == 2):
            return super().forward(x)
        factor = self.low_weight() if self.low_precision else self.weight.detach()
        return cast(Tensor, _Product.apply(x, self.weight, self.bias, factor))

    @property
    def is_wide(self) -> bool:
        """Whether the products outweigh what is done around them to have them faster."""
        return self.in_features * self.out_features >= _WIDE

    def low_weight(self) -> Tensor:
        """The weights in bfloat16: those kept, unless the weights are others now (loaded, or put in their place)."""
        if self.kept is not None and self.kept[1:] == (self.weight.data_ptr(), self.weight._version):
            return self.kept[0]
        return self.weight.detach().bfloat16()

    def keep(self, low: Tensor) -> None:
        """Take these for the weights in bfloat16 until the weights change."""
        self.kept = low, self.weight.data_ptr(), self.weight._version

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "kept"}  # copies are on their own


class _Product(torch.autograd.Function):
    """x·Wᵀ + b, with the products in the precision of `factor`, which is W.

    Often one half of a batch, the target's, has no part in the loss of a head, and its gradient is all zeros: the
    products of the backward pass, most of the work, are then made of the other half alone.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, factor: Tensor) -> Tensor:
        x = x.to(factor.dtype)
        ctx.save_for_backward(x, factor)
        product = times(x, factor.t())
        return product.add_(bias) if product.dtype == bias.dtype else product + bias

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, factor = ctx.saved_tensors
        whole = gradients[0]
        rows = _rows_that_matter(whole)
        part, x = (whole, x) if rows == len(whole) else (whole[:rows], x[:rows])
        gradient = part.to(factor.dtype)
        by_input = by_weight = by_bias = None
        if ctx.needs_input_grad[0]:
            by_input = times(gradient, factor).to(whole.dtype)
            if rows < len(whole):
                by_input = torch.cat([by_input, by_input.new_zeros(len(whole) - rows, by_input.shape[1])])
        if ctx.needs_input_grad[1]:
            by_weight = times(gradient.t(), x)
        if ctx.needs_input_grad[2]:
            by_bias = part.sum(0)
        return by_input, by_weight, by_bias, None


def times(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product a·b, by the library that is fastest on this processor."""
    if a.dtype == torch.float32 and a.numel() and _onednn_is_faster():
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], ""))
    return torch.mm(a, b)


@functools.cache
def _onednn_is_faster() -> bool:
    """Whether float32 products are better left to oneDNN, which makes those of bfloat16 anyway, than to MKL.

    PyTorch leaves them to MKL, which on an AMD EPYC with AVX-512 took twice as long as oneDNN did
    (`benchmarks/cpu_peers.py`). By the processor's name and not by a race: the same machine has to come to the same
    numbers every time.
    """
    listing = Path("/proc/cpuinfo")
    by_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    known = by_mkl and hasattr(torch.ops.mkldnn, "_linear_pointwise") and listing.exists()
    if not known or "AVX512" not in torch.backends.cpu.get_cpu_capability():
        return False
    vendors = {line.split(":")[1].strip() for line in listing.read_text().splitlines() if line.startswith("vendor_id")}
    return bool(vendors) and "GenuineIntel" not in vendors


def _rows_that_matter(gradient: Tensor) -> int:
    """Half of the rows if the others are all zeros, else all of them."""
    half = len(gradient) // 2
    least, most = torch.aminmax(gradient[half:])
    return half if half and least.item() == most.item() == 0 else len(gradient)


class Dropout(nn.Module):
    """Dropout whose mask is cheap on a CPU too: one random byte an element instead of one draw of the generator.

    PyTorch's own spends an eighth of a training step on the CPU there. The probability is rounded to 1/256.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p)
        dropped = min(255, round(256 * self.p))
        draws = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits are random
        # In place and in floating point: PyTorch has fast loops for that, and none for what is true or false.
        kept = draws.view(torch.uint8)[: x.numel()].view(x.shape).to(x.dtype).ge_(dropped)
        return x * kept.mul_(256 / (256 - dropped))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def reverse_gradient(x: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """The identity, whose gradient is multiplied by −scale. `scale` may be a tensor that follows a schedule."""
    return cast(Tensor, _ReverseGradient.apply(x, scale))


class _ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor | float) -> Tensor:
        ctx.scale = scale  # a number stays one: making a tensor of it here would copy to the device in every step
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.scale * gradients[0], None
