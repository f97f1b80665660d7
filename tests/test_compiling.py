"""The backbone compiled while it trains: the same gradients, and nothing left of it afterwards."""

from __future__ import annotations

import copy

import pytest
import torch

from robustda import Domain, compiling
from robustda.compiling import compile_backbone, uncompile
from robustda.errors import ConfigError, RobustDAWarning
from robustda.methods import create_method
from robustda.nets import Classifier, SmallCNN, create_backbone
from test_every_method import QUIET


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.GraphModule]:
    """As compiled, with PyTorch's own kernels in place of new ones; what was traced."""
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    run = torch.compile(compiling._forward, backend=keep, dynamic=False)
    monkeypatch.setattr(compiling, "_compiled", lambda: run)
    return graphs


def test_gradients_are_the_same_and_other_networks_need_no_other_code(traced: list[torch.fx.GraphModule]) -> None:
    torch.manual_seed(0)
    network = Classifier(create_backbone("resnet10t", (64, 64, 3), "random"), 3, 16, dropout=0.0)
    plain = copy.deepcopy(network)
    compile_backbone(network)
    again = copy.deepcopy(plain)
    compile_backbone(again)
    x = torch.rand(6, 3, 64, 64)
    for one in (plain, network, again):
        one.train()(x).square().mean().backward()
    for (name, expected), found, other in zip(
        plain.named_parameters(), network.parameters(), again.parameters(), strict=True
    ):
        torch.testing.assert_close(found.grad, expected.grad, msg=name)
        torch.testing.assert_close(other.grad, expected.grad, msg=name)
    assert len(traced) == 1
    assert list(network.state_dict()) == list(plain.state_dict())


def test_prediction_goes_the_usual_way_and_nothing_stays(traced: list[torch.fx.GraphModule]) -> None:
    network = Classifier(SmallCNN(), 3, 16)
    compile_backbone(network)
    with torch.no_grad():
        for count in (2, 3, 5):
            network.eval()(torch.rand(count, 3, 16, 16))
    assert traced == []
    assert "forward" in network.backbone.__dict__
    uncompile(network)
    assert "forward" not in network.backbone.__dict__


def test_a_frozen_backbone_is_left_alone() -> None:
    network = Classifier(SmallCNN().requires_grad_(False), 3, 16)
    compile_backbone(network)
    assert "forward" not in network.backbone.__dict__


def test_what_cannot_be_compiled_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        raise RuntimeError("no compiler is here")

    torch.compiler.reset()
    monkeypatch.setattr(compiling, "_compiled", lambda: torch.compile(compiling._forward, backend=broken))
    network = Classifier(SmallCNN(), 3, 16).train()
    compile_backbone(network)
    with pytest.raises(ConfigError, match=r"could not be compiled \(.*leave --compile out"):
        network(torch.rand(4, 3, 16, 16))


@pytest.mark.filterwarnings("ignore:compile is for a GPU")
def test_on_a_cpu_the_option_changes_nothing() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (40, 16, 16, 3), generator=rng).numpy().astype("uint8")
    source = Domain.from_arrays(x, [0, 1] * 20)
    with pytest.warns(RobustDAWarning, match="nothing is compiled"):
        create_method("source_only", steps=1, batch_size=8).fit(source, source.unlabelled(), **QUIET, compile=True)
    found = [
        create_method("source_only", steps=3, batch_size=8, seed=0).fit(
            source, source.unlabelled(), **QUIET, compile=way
        )
        for way in (False, True)
    ]
    assert (found[0].predict_proba(source) == found[1].predict_proba(source)).all()
