"""The domain games: who descends and who climbs, by finite differences on ψ, judge and head; ADDA's two encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from helpers import batch_of, task
from robustda.alignment import domain_loss
from robustda.methods import ADDA, DANN, MDD, TCL, Method


def difference(value: Callable[[], Tensor], parameter: Tensor, place: tuple[int, ...], step: float = 1e-6) -> float:
    """The derivative of `value` with respect to one entry, by central differences."""
    with torch.no_grad():
        entry = parameter[place].item()
        parameter[place] = entry + step
        above = value().item()
        parameter[place] = entry - step
        below = value().item()
        parameter[place] = entry
    return (above - below) / (2 * step)


GAMES: list[tuple[Method, str, tuple[str, ...]]] = [
    (
        DANN(backbone="identity", width=6, discriminator_width=4, dropout=0, beta=0.3, beta_speed=1e6),
        "discriminator",
        ("domain_loss",),
    ),
    (
        TCL(backbone="identity", width=6, discriminator_width=4, dropout=0, beta=0.3, beta_speed=1e6),
        "discriminator",
        ("domain_loss",),
    ),
    (
        MDD(backbone="identity", width=6, dropout=0, beta=0.3, beta_rise=0),
        "adversary",
        ("source_disparity", "target_disparity"),
    ),
]


@pytest.mark.parametrize(("method", "judge", "game"), GAMES, ids=lambda value: getattr(value, "name", None))
def test_gradients_of_the_game_and_of_the_risk(method: Method, judge: str, game: tuple[str, ...]) -> None:
    """The judge descends the game, ψ climbs it at β; both the head f and ψ descend the risk."""
    torch.manual_seed(0)
    given = task()
    phase = method.phases()[0](given)
    network: Any = phase.network.double().train()
    network.features = lambda x: network.bottleneck(network.backbone(x))  # all in float64, for the differences' sake
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    batch, progress = batch_of(given, torch.float64), torch.tensor(0.1, dtype=torch.float64)

    def value(*names: str) -> Callable[[], Tensor]:
        return lambda: torch.stack([phase.loss(batch, progress)[name] for name in names]).sum()

    parameters = {
        "ψ": network.get_parameter("bottleneck.0.weight"),
        "judge": network.get_parameter(f"{judge}.0.weight"),
        "head": network.get_parameter("f.0.weight"),
    }
    expected = {
        ("game", "ψ"): -0.3,
        ("game", "judge"): 1.0,
        ("game", "head"): 0.0,  # h_f is held constant
        ("risk", "ψ"): 1.0,
        ("risk", "judge"): 0.0,
        ("risk", "head"): 1.0,
    }
    for (which, where), factor in expected.items():
        terms = value(*game) if which == "game" else value("risk")
        (gradient,) = torch.autograd.grad(terms(), parameters[where], allow_unused=True)
        gradient = torch.zeros_like(parameters[where]) if gradient is None else gradient
        for place in [(0, 0), (2, 3), (3, 1)]:
            measured = factor * difference(terms, parameters[where], place)
            assert gradient[place].item() == pytest.approx(measured, rel=1e-4, abs=1e-8), (which, where)
        assert bool(gradient.abs().max() > 1e-3) == (factor != 0), (which, where)


@pytest.mark.parametrize("kind", [DANN, TCL])
@pytest.mark.parametrize("progress", [0.1, 0.9])
def test_the_domain_loss_calls_the_source_one(kind: type[DANN] | type[TCL], progress: float) -> None:
    """And in TCL, once warmed up, only the chosen source examples take part."""
    torch.manual_seed(0)
    given = task()
    phase = kind(backbone="identity", width=6, discriminator_width=4, dropout=0).adapt(given)
    network: Any = phase.network
    torch.nn.init.normal_(network.f[3].weight, 0, 3)  # so that some losses lie on either side of TCL's bound
    batch = batch_of(given)
    terms = phase.loss(batch, torch.tensor(progress))
    features = network.features(torch.cat([batch.source, batch.target]))
    logits = network.discriminator(features)[:, 0]
    losses = F.binary_cross_entropy_with_logits(logits, torch.cat([torch.ones(12), torch.zeros(12)]), reduction="none")
    chosen = torch.ones(12)
    if kind is TCL and progress > 0.15:
        score = F.cross_entropy(network.f(features)[:12], batch.labels, reduction="none") - 0.1 * F.logsigmoid(
            -logits[:12]
        )
        chosen = (score < 1.2733).float()
        assert 0 < chosen.sum() < 12
    expected = (losses[:12] * chosen).sum() / chosen.sum() / 2 + losses[12:].mean() / 2
    assert terms["domain_loss"].item() == pytest.approx(expected.item(), rel=1e-4)


def test_adda_inverts_labels_and_freezes_source_and_head() -> None:
    torch.manual_seed(0)
    given = task()
    method = ADDA(backbone="identity", width=6, discriminator_width=4, steps=10)
    first = method.source(given)
    first.network.eval()
    assert first.end is not None
    first.end()
    learned = {name: tensor.clone() for name, tensor in first.network.state_dict().items()}
    assert {f"source/{name}" for name in learned} == set(given.memory)

    phase = method.adapt(given)
    network = phase.network
    for name, tensor in learned.items():
        torch.testing.assert_close(network.state_dict()[name], tensor)
    assert first.steps + phase.steps == 10
    with torch.no_grad():  # an encoder that has moved away from the source's
        network.get_parameter("bottleneck.0.weight").normal_()
    batch = batch_of(given)
    terms = phase.loss(batch, torch.tensor(0.0))
    with torch.no_grad():
        encoders: Any = (first.network, network)
        features = [e.bottleneck[:-1](x) for e, x in zip(encoders, (batch.source, batch.target), strict=True)]
        domain = network.get_submodule("discriminator")(torch.cat(features))[:, 0]
    assert terms["domain_loss"].item() == pytest.approx(domain_loss(domain[:12], domain[12:]).item(), rel=1e-4)
    assert terms["inverted_loss"].item() == pytest.approx(-F.logsigmoid(domain[12:]).mean().item(), rel=1e-4)
    encoder, judge = network.get_parameter("bottleneck.0.weight"), network.get_parameter("discriminator.0.weight")
    # Each of the two updates reaches its own side only, and the frozen head none.
    assert torch.autograd.grad(terms["domain_loss"], encoder, allow_unused=True, retain_graph=True)[0] is None
    assert torch.autograd.grad(terms["inverted_loss"], judge, allow_unused=True, retain_graph=True)[0] is None
    assert not any(parameter.requires_grad for parameter in network.get_submodule("f").parameters())
    # A step of the encoder makes the discriminator take the target for the source.
    (gradient,) = torch.autograd.grad(terms["inverted_loss"], encoder)
    with torch.no_grad():
        encoder -= 1e-2 * gradient
    after = phase.loss(batch_of(given), torch.tensor(0.0))
    assert after["inverted_loss"] < terms["inverted_loss"]
    # Features are compared without dropout, so the loss has no randomness left in it.
    assert phase.loss(batch_of(given), torch.tensor(0.0))["inverted_loss"] == after["inverted_loss"]


def test_adda_learns_at_its_own_rates() -> None:
    given = task()
    method = ADDA(backbone="identity", width=6, discriminator_width=4, encoder_rate=0.2)
    network = method.network(given.source.example_shape, given.n_classes)
    groups = method.parameter_groups(network)
    assert [group["share"] for group in groups] == [1.0, 0.2]
    assert sum(p.numel() for group in groups for p in group["params"]) == sum(p.numel() for p in network.parameters())
