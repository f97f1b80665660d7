"""Batch norm that keeps its statistics as a part of the convolutions: the same outcome and the same gradients."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from robustda.backbones import ModuleBackbone
from robustda.folding import fold, unfold
from robustda.nets import Classifier, create_backbone


def pretend(backbone: nn.Module) -> None:
    """Statistics and weights of batch norm as if it had learned something."""
    torch.manual_seed(1)
    for layer in backbone.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor, low, high in ((layer.running_mean, -0.5, 0.5), (layer.running_var, 0.5, 2.0)):
                assert tensor is not None
                tensor.uniform_(low, high)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.5, 0.5)


def classifier(name: str = "resnet18") -> Classifier:
    backbone = create_backbone(name, (32, 32, 3), weights="random")
    pretend(backbone)
    backbone.pretrained = backbone.keeps_statistics = True
    return Classifier(backbone, 3, 8, dropout=0.0).double().train()


def gradients(network: Classifier, x: Tensor) -> dict[str, Tensor]:
    network.zero_grad()
    network.backbone(x).square().sum().backward()
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("name", "places"), [("resnet18", 20), ("resnet50_v1", 53)])
def test_outcome_and_all_gradients_are_the_same(name: str, places: int) -> None:
    network = classifier(name)
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    before, wanted = network.backbone(x).detach(), gradients(network, x)
    statistics = {key: value.clone() for key, value in network.state_dict().items() if "running" in key}
    assert fold(network) == places
    torch.testing.assert_close(network.backbone(x).detach(), before)
    torch.testing.assert_close(gradients(network, x), wanted)
    assert all(torch.equal(network.state_dict()[key], value) for key, value in statistics.items())
    unfold(network)
    assert not any("forward" in layer.__dict__ for layer in network.modules())


def test_what_is_evaluated_goes_through_the_layers_as_they_are() -> None:
    network = classifier().float()
    x = torch.rand(2, 3, 32, 32)
    plain = network.eval()(x)
    fold(network.train())
    torch.testing.assert_close(network.eval()(x), plain, rtol=0, atol=0)
    network.train()
    with torch.no_grad():
        torch.testing.assert_close(network.backbone(x), copy.deepcopy(network).eval().backbone(x), rtol=0, atol=0)


def test_statistics_that_are_learned_are_left_alone() -> None:
    network = classifier()
    network.backbone.keeps_statistics = False
    assert fold(network) == 0
    network = classifier()
    network.backbone.requires_grad_(False)
    assert fold(network) == 0, "what does not learn has no way back that would be slow"


class Forked(nn.Module):
    """The outcome of its first convolution goes two ways; which way its second goes depends on the numbers."""

    def __init__(self, *, by_numbers: bool) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 4, 3, bias=False)
        self.norm, self.norm_other = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.by_numbers = by_numbers

    def forward(self, x: Tensor) -> Tensor:
        seen = self.one(x)
        seen = self.norm(seen) + seen
        if self.by_numbers and seen.sum() > 0:
            seen = -seen
        return self.norm_other(self.other(seen)).mean((2, 3))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("by_numbers", "places"), [(False, 1), (True, 0)])
def test_only_what_goes_nowhere_else_is_folded_and_what_cannot_be_followed_is_not(
    by_numbers: bool, places: int
) -> None:
    backbone = ModuleBackbone(Forked(by_numbers=by_numbers), (16, 16, 3))
    pretend(backbone)
    backbone.keeps_statistics = True
    network = Classifier(backbone, 3, 8, dropout=0.0).double().train()
    x = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    wanted = gradients(network, x)
    assert fold(network) == places
    torch.testing.assert_close(gradients(network, x), wanted)
