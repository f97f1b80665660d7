"""A look at all examples in the middle of training: merged convolutions say what the layers as they are say."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import robustda.nets
from robustda import glance
from robustda.nets import Classifier, create_backbone
from test_folding import pretend


def model(name: str = "resnet18") -> nn.Module:
    backbone = create_backbone(name, (64, 64, 3), weights="random").eval().double()
    pretend(backbone)
    return backbone.model  # type: ignore[no-any-return, union-attr]


@pytest.mark.parametrize(("name", "places", "with_relu"), [("resnet18", 20, 17), ("resnet50_v1", 53, 49)])
@torch.no_grad()
def test_merged_convolutions_say_the_same(name: str, places: int, with_relu: int) -> None:
    given = model(name)
    x = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    way = glance.merged(given)
    assert way is not None
    assert len(way) == places
    kinds = [type(part).__name__ for part in way._module.modules()]
    assert kinds.count("BatchNorm2d") == 0
    assert kinds.count("ReLU") == 0
    assert sum(part._relu for part in way._parts) == with_relu
    way.refresh(torch.float64)
    torch.testing.assert_close(way(x), given(x))


@torch.no_grad()
def test_what_was_learned_since_is_taken_over() -> None:
    given, x = model(), torch.rand(2, 3, 64, 64, dtype=torch.float64)
    way = glance.merged(given)
    assert way is not None
    for layer in given.modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.mul_(1.1)
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.add_(0.1)  # type: ignore[union-attr]
    way.refresh(torch.float64)
    torch.testing.assert_close(way(x), given(x))


class Branching(nn.Module):
    """What must not be merged: an outcome that goes two ways, a sum of three, a ReLU that is another function."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.second, self.after = nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4)
        self.relu, self.other = nn.ReLU(), nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x))
        twice = self.relu(x) + x  # the outcome of the batch norm is needed as it is
        return self.other(self.after(self.second(twice))).mean(dim=(2, 3))


@torch.no_grad()
def test_only_what_goes_nowhere_else_is_merged() -> None:
    given, x = Branching().eval().double(), torch.rand(2, 3, 8, 8, dtype=torch.float64)
    pretend(given)
    way = glance.merged(given)
    assert way is not None
    assert [part._relu for part in way._parts] == [False, False]
    way.refresh(torch.float64)
    torch.testing.assert_close(way(x), given(x))


def test_nothing_to_merge() -> None:
    assert glance.merged(nn.Sequential(nn.Linear(3, 2))) is None


@torch.no_grad()
def test_for_the_time_of_a_glance_only(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Classifier(create_backbone("resnet18", (64, 64, 3), weights="random"), 3, 8).eval()
    pretend(network)
    x = torch.rand(4, 3, 64, 64)
    plain = network.described(x)
    with glance.glancing(network):  # on a CPU, in float32: nothing is to be gained
        assert torch.equal(network.described(x), plain)
    monkeypatch.setattr(glance, "_model", lambda backbone: backbone.model)
    with glance.glancing(network):
        seen = network.backbone.model(x.to(torch.bfloat16)).float()  # type: ignore[operator, union-attr]
    wanted = network.backbone.model(x)  # type: ignore[operator, union-attr]
    assert not torch.equal(seen, wanted)
    torch.testing.assert_close(seen, wanted, rtol=0.1, atol=0.1)
    assert torch.equal(network.described(x), plain)
    with glance.glancing(network):  # of another precision than the merged layers, which then refuse
        assert torch.equal(network.described(x), plain)
    assert glance._KNOWN[network.backbone.model] is None  # type: ignore[index]
    assert torch.equal(network.described(x), plain)


def test_a_backbone_that_will_be_needed_is_imported_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[str] = []
    monkeypatch.setattr(robustda.nets, "_import", lambda *names: began.append(threading.current_thread().name))
    for name in ("small_cnn", "hf:anything", "resnet18"):
        robustda.nets.soon_needed(name)
    for thread in threading.enumerate():
        if thread.name == "robustda-import":
            thread.join()
    assert began == ["robustda-import"]
