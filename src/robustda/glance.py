"""A look at all examples in the middle of training, on a GPU: convolution, batch norm, sum and ReLU in one kernel each.

Stage 1 of RDA asks after every epoch for the loss of every example. Nothing is learned in such a pass, so that batch
norm is a part of the convolution's weights, and cuDNN adds what comes by a shortcut and cuts off below zero while it
writes the convolution's outcome, instead of three kernels that each read and write all of it (`benchmarks/gpu_step.py
--glance` measures what that is worth). What comes out is the same but for rounding; predictions, which others will
repeat, are not made so.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from robustda.folding import folded, pairs_in
from robustda.nets import Backbone

__all__ = ["Merged", "glancing", "merged"]

_KNOWN: WeakKeyDictionary[nn.Module, Merged | None] = WeakKeyDictionary()


@contextmanager
def glancing(network: nn.Module) -> Iterator[None]:
    """Have the backbone of a network that is not training go through its convolutions so, if it can."""
    backbone = getattr(network, "backbone", None)
    model = _model(backbone)
    if model is None:
        yield
        return
    if model not in _KNOWN:
        _KNOWN[model] = merged(model)
    way = _KNOWN[model]
    if way is None:
        yield
        return
    way.refresh()
    model.forward = _Way(model, way)
    try:
        yield
    finally:
        del model.forward


def merged(model: nn.Module) -> Merged | None:
    """The model with its convolutions merged with what follows them; None where there is nothing to merge."""
    try:
        graph = fx.Tracer().trace(model)
    except Exception:  # a model may do anything with its inputs; it then stays as it is
        return None
    layers = dict(model.named_modules())
    parts: dict[str, _One] = {}
    for convolution, norm in pairs_in(graph, layers):
        last, shortcut = _followed(norm, layers)
        name = f"merged_{len(parts)}"
        parts[name] = _One(layers[str(convolution.target)], layers[str(norm.target)], relu=last is not norm)
        with graph.inserting_before(last):
            arguments = (convolution.args[0],) if shortcut is None else (convolution.args[0], shortcut)
            last.replace_all_uses_with(graph.call_module(name, arguments))
    if not parts:
        return None
    whole = fx.GraphModule({**layers, **parts}, graph)
    whole.graph.eliminate_dead_code()
    whole.delete_all_unused_submodules()
    whole.recompile()
    return Merged(whole.eval(), list(parts.values()))


class Merged:
    """A model made of merged convolutions. `refresh` takes over weights and statistics of the layers as they are."""

    def __init__(self, module: fx.GraphModule, parts: list[_One]) -> None:
        self._module, self._parts = module, parts

    def __len__(self) -> int:
        return len(self._parts)

    def refresh(self, dtype: torch.dtype = torch.bfloat16) -> None:
        for part in self._parts:
            part.refresh(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return cast(Tensor, self._module(x))


class _Way:
    """The forward of a model for the time of a glance; a plain object, which the model does not take for a layer."""

    def __init__(self, model: nn.Module, way: Merged) -> None:
        self._model, self._plain, self._way = model, model.forward, way

    def __call__(self, x: Tensor) -> Tensor:
        if _KNOWN[self._model] is not None:
            try:
                return self._way(x)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # a device or a shape for which cuDNN has no such kernel
                _KNOWN[self._model] = None
        return cast(Tensor, self._plain(x))


class _One(nn.Module):
    """A convolution with the batch norm behind it, and perhaps a sum with a shortcut and a ReLU."""

    weight: Tensor
    bias: Tensor

    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d, *, relu: bool) -> None:
        super().__init__()
        self._layers = (convolution, norm)  # in a tuple: they are the model's own
        self._how = _sizes(convolution.stride), _sizes(convolution.padding), _sizes(convolution.dilation)
        self._groups = convolution.groups
        self._relu = relu

    def refresh(self, dtype: torch.dtype) -> None:
        with torch.no_grad():
            weight, bias = folded(*self._layers)
        self.weight, self.bias = weight.to(dtype, memory_format=torch.channels_last), bias.to(dtype)

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        if not self._relu:
            return F.conv2d(x, self.weight, self.bias, *self._how, self._groups)
        if x.is_cuda:
            if shortcut is None:
                return torch.cudnn_convolution_relu(x, self.weight, self.bias, *self._how, self._groups)
            return torch.cudnn_convolution_add_relu(x, self.weight, shortcut, 1.0, self.bias, *self._how, self._groups)
        made = F.conv2d(x, self.weight, self.bias, *self._how, self._groups)
        return F.relu(made if shortcut is None else made + shortcut)


def _sizes(given: tuple[int, ...] | str) -> tuple[int, ...]:
    assert not isinstance(given, str)  # such padding is not merged
    return given


def _model(backbone: Any) -> nn.Module | None:
    """The model in a backbone that computes in bfloat16 on a GPU and is not training."""
    if not isinstance(backbone, Backbone) or backbone.own or backbone.training or not backbone.low_precision:
        return None
    model = getattr(backbone, "model", None)
    if not isinstance(model, nn.Module) or "forward" in model.__dict__:
        return None
    first = next(model.parameters(), None)
    return model if first is not None and first.is_cuda else None


def _followed(norm: fx.Node, layers: dict[str, nn.Module]) -> tuple[fx.Node, Any]:
    """The ReLU at the end of what can be merged with a batch norm, else this itself; and the shortcut on the way."""
    after = _only_user(norm, layers)
    if after is None:
        return norm, None
    if _is_relu(after, layers):
        return after, None
    if after.op != "call_function" or after.target not in (operator.add, operator.iadd, torch.add) or after.kwargs:
        return norm, None
    shortcuts = [given for given in after.args if _behind(given, layers) is not norm]
    relu = _only_user(after, layers)
    if len(after.args) != 2 or len(shortcuts) != 1 or not isinstance(shortcuts[0], fx.Node) or relu is None:
        return norm, None
    return (relu, shortcuts[0]) if _is_relu(relu, layers) else (norm, None)


def _only_user(node: fx.Node, layers: dict[str, nn.Module]) -> fx.Node | None:
    """Where its outcome goes, past layers that do nothing; None if to several places."""
    while len(node.users) == 1:
        (node,) = node.users
        if not _does_nothing(node, layers):
            return node
    return None


def _behind(node: Any, layers: dict[str, nn.Module]) -> Any:
    while isinstance(node, fx.Node) and _does_nothing(node, layers):
        node = node.args[0]
    return node


def _does_nothing(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    return node.op == "call_module" and isinstance(layers.get(str(node.target)), nn.Identity)


def _is_relu(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    return node.op == "call_module" and type(layers.get(str(node.target))) is nn.ReLU
