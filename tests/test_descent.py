"""The optimiser does what PyTorch's own does, and keeps the bfloat16 weights of wide layers up to date on the way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robustda.descent import Descent
from robustda.layers import Wide

CPU = torch.device("cpu")
RATES = [0.1, 0.05, 0.2, 0.01]


class Plain(nn.Linear):
    """A layer with products in bfloat16, as PyTorch differentiates it by itself."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x.bfloat16(), self.weight.bfloat16()).float() + self.bias


def network(kind: type[nn.Linear]) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(kind(600, 512), nn.BatchNorm1d(512), nn.ReLU(), kind(512, 512), nn.Linear(512, 3))
    for layer in layers:
        if isinstance(layer, Wide):
            layer.low_precision = True
    return layers


def gradients(layers: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(16, 600, generator=generator), torch.randint(0, 3, (16,), generator=generator)
    layers.zero_grad()
    nn.functional.cross_entropy(layers(x), y).backward()


def groups(layers: nn.Sequential) -> list[dict[str, Any]]:
    return [{"params": list(layers[:3].parameters()), "share": 1.0}, {"params": list(layers[3:].parameters())}]


@pytest.mark.parametrize("momentum", [0.9, 0.0])
@pytest.mark.parametrize("weight_decay", [5e-4, 0.0])
@pytest.mark.parametrize("block", [2**18, 10_000, 1])
def test_steps_are_those_of_pytorch(monkeypatch, momentum, weight_decay, block):
    monkeypatch.setattr("robustda.descent._BLOCK", block)
    ours, theirs = network(Wide), network(Plain)
    options = {"momentum": momentum, "weight_decay": weight_decay}
    mine = Descent(groups(ours), ours, device=CPU, **options)
    other = torch.optim.SGD(groups(theirs), lr=0.0, nesterov=momentum > 0, **options)
    for step, rate in enumerate(RATES):
        for group in mine.param_groups:
            group["lr"].fill_(rate)
        for group in other.param_groups:
            group["lr"] = rate
        for layers, optimiser in ((ours, mine), (theirs, other)):
            gradients(layers, step)
            optimiser.step()
        for name, parameter in theirs.named_parameters():
            torch.testing.assert_close(ours.get_parameter(name), parameter, rtol=1e-4, atol=1e-5)
        for layer in (ours[0], ours[3]):
            assert torch.equal(layer.low_weight(), layer.weight.detach().bfloat16())
            assert (layer.kept is None) == (momentum == 0)
    assert {len(state) for state in mine.state.values()} <= {1}


def test_the_kept_weights_follow_what_is_loaded():
    layers, reference = network(Wide), network(Wide)
    optimiser = Descent(groups(layers), layers, device=CPU, momentum=0.9, weight_decay=0.0)
    before = {name: tensor.clone() for name, tensor in layers.state_dict().items()}
    for group in optimiser.param_groups:
        group["lr"].fill_(0.1)
    gradients(layers, 0)
    optimiser.step()
    x = torch.randn(4, 600)
    assert not torch.equal(layers(x), reference(x))
    layers.load_state_dict(before)
    reference.load_state_dict(before)
    assert torch.equal(layers(x), reference(x))
    gradients(layers, 1)
    optimiser.step()
    assert torch.equal(layers[0].low_weight(), layers[0].weight.detach().bfloat16())


def test_a_layer_without_a_gradient_stays_as_it_is():
    layers = network(Wide)
    optimiser = Descent(groups(layers), layers, device=CPU, momentum=0.9, weight_decay=0.1)
    before = layers[0].weight.detach().clone()
    optimiser.param_groups[1]["lr"].fill_(0.1)
    layers[3](torch.randn(4, 512)).sum().backward()
    optimiser.step()
    assert torch.equal(layers[0].weight, before)
    assert layers[3].weight in optimiser.state
    assert layers[0].weight not in optimiser.state
