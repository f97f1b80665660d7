"""RDA's second stage, term by term and gradient by gradient: what it shares with MDD, and what the paper changes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from robustda.data.batches import Inputs
from robustda.data.domain import Domain
from robustda.methods import MDD, RDA
from robustda.methods.base import Batch, Phase, Task

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"width": 16, "steps": 100, "batch_size": 12}
N_CLASSES = 4


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("backbone", ["identity", "mlp"])
@pytest.mark.parametrize("progress", [0.0, 0.3, 1.0])
def test_without_curriculum_and_proxy_rda_is_mdd(dropout: float, backbone: str, progress: float) -> None:
    task = small_task()
    options = {**SMALL, "dropout": dropout, "backbone": backbone}
    rda = phase_of(RDA(del_ocl=True, del_pmd=True, **options), task)
    mdd = phase_of(MDD(**options), task)
    assert rda.network is not mdd.network
    rda.network.load_state_dict(mdd.network.state_dict())
    terms, gradients = outcome(rda, draw_batch(task), progress)
    expected_terms, expected_gradients = outcome(mdd, draw_batch(task), progress)
    assert list(terms) == list(expected_terms)
    for name in terms:
        torch.testing.assert_close(terms[name], expected_terms[name], rtol=0, atol=0)
    assert gradients.keys() == expected_gradients.keys()
    for name in gradients:
        torch.testing.assert_close(gradients[name], expected_gradients[name], rtol=0, atol=0)
    assert rda.rows is None
    assert (rda.name, rda.steps, rda.uses_target) == (mdd.name, mdd.steps, mdd.uses_target)
    for p in (0.0, 0.5, 1.0):
        assert float(rda.learning_rate(torch.tensor(p))) == float(mdd.learning_rate(torch.tensor(p)))


def test_the_ablations_and_mdd_have_the_same_phases_settings_and_network() -> None:
    rda, mdd = RDA(del_ocl=True, del_pmd=True), MDD()
    assert [build.__name__ for build in rda.phases()] == [build.__name__ for build in mdd.phases()] == ["adapt"]
    assert [build.__name__ for build in RDA().phases()] == ["filter", "adapt"]
    shared = mdd.params()
    assert {name: value for name, value in rda.params().items() if name in shared} == shared


def test_a_proxy_of_the_whole_batch_adds_nothing_to_mdd() -> None:
    task = small_task()
    rda = phase_of(RDA(del_ocl=True, proxy_share=1.0, **SMALL), task)
    mdd = phase_of(MDD(**SMALL), task)
    rda.network.load_state_dict(mdd.network.state_dict())
    terms, gradients = outcome(rda, draw_batch(task), 0.4)
    expected_terms, expected_gradients = outcome(mdd, draw_batch(task), 0.4)
    assert terms.pop("proxy_share") == 1
    torch.testing.assert_close(terms, expected_terms)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("backbone", ["identity", "mlp"])
@pytest.mark.parametrize("progress", [0.0, 0.4, 1.0])
def test_the_papers_updates_are_those_of_its_algorithm(backbone: str, progress: float) -> None:
    task = small_task()
    method = RDA(variant="paper", del_ocl=True, dropout=0.0, backbone=backbone, proxy_share=0.7, **SMALL)
    phase, batch = phase_of(method, task), draw_batch(task)
    terms, gradients = outcome(phase, batch, progress)

    network = phase.network
    logits, adversary = forward(network, batch)
    count = len(batch.labels)
    losses = F.cross_entropy(logits[:count], batch.labels, reduction="none")
    proxy = smallest(losses, max(1, math.ceil(min(progress, 0.7) * count - 1e-4)))
    risk_on_proxy, risk = losses[proxy].mean(), losses.mean()
    game = game_of(logits, adversary, count, proxy, method.alpha)
    assert {name: float(term) for name, term in terms.items() if name in ("risk", "feature_risk")} == pytest.approx(
        {"risk": float(risk_on_proxy.detach()), "feature_risk": float(risk.detach())}, rel=1e-5
    )
    assert float(terms["proxy_share"]) == pytest.approx(len(proxy) / count)
    assert float(terms["loss"]) == pytest.approx(float((risk_on_proxy + risk + game).detach()), rel=1e-5)

    # θ_f goes by the risk on Q', θ_f' by the game, and ψ by the risk on the whole batch and the reversed game.
    expected = by_name(network, "f.", risk_on_proxy)
    expected |= by_name(network, "adversary.", game)
    of_risk, of_game = (by_name(network, ("backbone.", "bottleneck."), value) for value in (risk, game))
    expected |= {name: of_risk[name] - method.beta * of_game[name] for name in of_risk}
    assert gradients.keys() == expected.keys()
    for name in gradients:
        torch.testing.assert_close(gradients[name], expected[name], rtol=1e-3, atol=2e-6, msg=lambda m, n=name: n + m)
    if progress < 1:
        assert not torch.allclose(gradients["f.3.weight"], by_name(network, "f.", risk)["f.3.weight"], rtol=0.01)


def test_the_authors_updates_train_the_classifier_on_all_and_the_adversary_on_the_proxy() -> None:
    task = small_task()
    method = RDA(del_ocl=True, dropout=0.0, backbone="mlp", proxy_share=0.5, **SMALL)
    phase, batch = phase_of(method, task), draw_batch(task)
    terms, gradients = outcome(phase, batch, 1.0)
    network = phase.network
    logits, adversary = forward(network, batch)
    count = len(batch.labels)
    losses = F.cross_entropy(logits[:count], batch.labels, reduction="none")
    proxy = smallest(losses, count // 2)
    game = game_of(logits, adversary, count, proxy, method.alpha, first_pair=False)
    assert "first_pair" not in terms
    assert "feature_risk" not in terms
    beta = 0.2 / (1 + math.exp(-method.steps / 1000)) - 0.1
    expected = by_name(network, "f.", losses.mean()) | by_name(network, "adversary.", game)
    of_risk, of_game = (by_name(network, ("backbone.", "bottleneck."), value) for value in (losses.mean(), game))
    expected |= {name: of_risk[name] - beta * of_game[name] for name in of_risk}
    assert gradients.keys() == expected.keys()
    for name in gradients:
        torch.testing.assert_close(gradients[name], expected[name], rtol=1e-3, atol=2e-6, msg=lambda m, n=name: n + m)


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_deleting_feature_noisy_examples_leaves_only_the_proxy_in_the_risk(variant: Any) -> None:
    task = small_task()
    options = {"variant": variant, "del_ocl": True, "dropout": 0.0, "beta": 0.0, "proxy_share": 0.5}
    phase, batch = phase_of(RDA(feature_noisy="delete", **options, **SMALL), task), draw_batch(task)
    terms, gradients = outcome(phase, batch, 1.0)
    network = phase.network
    losses = F.cross_entropy(forward(network, batch)[0][: len(batch.labels)], batch.labels, reduction="none")
    risk = losses[smallest(losses, len(losses) // 2)].mean()
    torch.testing.assert_close(terms["risk"], risk.detach())
    for name, expected in by_name(network, ("backbone.", "bottleneck.", "f."), risk).items():
        torch.testing.assert_close(gradients[name], expected, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("del_pmd", [False, True])
def test_the_online_curriculum_trusts_what_has_a_small_loss_at_the_moment(del_pmd: bool) -> None:
    task = small_task()
    method = RDA(
        backbone="identity",
        curriculum="online",
        online_threshold=1.4,
        online_warm_up=0.2,
        del_pmd=del_pmd,
        dropout=0.0,
        **SMALL,
    )
    assert [build.__name__ for build in method.phases()] == ["adapt"]
    phase, batch = phase_of(method, task), draw_batch(task)
    assert phase.rows is None
    logits, _ = forward(phase.network, batch)
    losses = F.cross_entropy(logits[: len(batch.labels)], batch.labels, reduction="none")
    trusted = losses <= 1.4
    assert 0 < int(trusted.sum()) < len(trusted)
    early, _ = outcome(phase, batch, 0.1)
    assert float(early["kept_share"]) == 1
    torch.testing.assert_close(early["risk"], losses.mean().detach())
    late, gradients = outcome(phase, batch, 0.2)
    assert float(late["kept_share"]) == pytest.approx(float(trusted.float().mean()))
    torch.testing.assert_close(late["risk"], losses[trusted].mean().detach())
    for name, expected in by_name(phase.network, "f.", losses[trusted].mean()).items():
        torch.testing.assert_close(gradients[name], expected, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize(
    ("variant", "proxy_share", "expected"),
    [
        ("paper", 0.6, [0.0, 0.5, 0.6]),
        ("paper", 0.4, [0.0, 0.4, 0.4]),
        ("paper", 1.0, [0.0, 0.5, 1.0]),
        ("authors", 0.6, [1.0, 0.6, 0.6]),  # del_rate .4, as for feature noise
        ("authors", 0.2, [1.0, 0.5, 0.2]),
        ("authors", 1.0, [1.0, 1.0, 1.0]),  # del_rate 0, as for label noise
    ],
)
def test_the_size_of_the_proxy_follows_its_schedule(variant: Any, proxy_share: float, expected: list[float]) -> None:
    share = RDA(variant=variant, proxy_share=proxy_share).share()
    assert [float(share(torch.tensor(p))) for p in (0.0, 0.5, 1.0)] == pytest.approx(expected)


@pytest.mark.parametrize("steps", [10_000, 2000])
def test_beta_follows_its_schedule(steps: int) -> None:
    at = torch.tensor([0.0, 0.5, 1.0])
    paper, authors = RDA(variant="paper", steps=steps).reversal(), RDA(variant="authors", steps=steps).reversal()
    assert [float(paper(p)) for p in at] == [0.1, 0.1, 0.1]
    assert [float(authors(p)) for p in at] == pytest.approx(
        [0.2 / (1 + math.exp(-i / 1000)) - 0.1 for i in (0, steps // 2, steps)], abs=1e-7
    )


def test_the_learning_rate_follows_its_schedule() -> None:
    at = [torch.tensor(p) for p in (0.0, 0.5, 1.0)]
    authors, paper = RDA(steps=10_000), RDA(variant="paper", steps=10_000)
    assert [float(authors.rate(10_000)(p)) for p in at] == pytest.approx(
        [0.004 * (1 + 0.0002 * i) ** -0.75 for i in (0, 5000, 10_000)]
    )
    assert [float(paper.rate(10_000)(p)) for p in at] == pytest.approx([0.001] * 3)


@pytest.mark.parametrize(
    "options", [{"variant": "paper"}, {"variant": "authors"}, {"del_pmd": True}, {"feature_noisy": "delete"}], ids=str
)
def test_a_step_traced_once_is_right_for_other_data_and_another_progress(options: dict[str, Any]) -> None:
    # Tracing with data-free tensors fails where a shape or a branch depends on a value, and a replay elsewhere differs.
    task = small_task()
    phase = phase_of(RDA(del_ocl=True, proxy_share=0.6, dropout=0.0, **options, **SMALL), task)
    phase.network.eval()  # a trace of batch norm in training would update the running mean as well

    def step(source: Tensor, labels: Tensor, rows: Tensor, target: Tensor, progress: Tensor) -> dict[str, Tensor]:
        return phase.loss(Batch(source, labels, rows, target), progress)

    first, second = (draw_batch(task, seed) for seed in (0, 1))
    inputs = [(b.source, b.labels, b.rows, b.target) for b in (first, second)]
    traced = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs[0], torch.tensor(0.1))
    torch.testing.assert_close(traced(*inputs[1], torch.tensor(0.9)), step(*inputs[1], torch.tensor(0.9)))


def test_the_second_stage_draws_from_the_trusted_rows_only() -> None:
    task = small_task()
    task.memory["trust"] = torch.tensor([1.0, 0.0, 1.0] * 16)
    trusted = [i for i in range(48) if i % 3 != 1]
    plain = phase_of(RDA(**{**SMALL, "rebalance": False}), task).rows
    assert plain is not None
    assert plain.tolist() == trusted
    balanced = phase_of(RDA(**SMALL), task).rows
    assert balanced is not None
    assert sorted(set(balanced.tolist())) == trusted
    assert torch.bincount(task.labels[balanced]).tolist() == torch.bincount(task.labels).tolist()


def small_task() -> Task:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(48) % N_CLASSES)
    centres = rng.normal(size=(N_CLASSES, 6))
    source = Domain.from_arrays((centres[labels] + 0.8 * rng.normal(size=(48, 6))).astype(np.float32), labels)
    target = Domain.from_arrays(rng.normal(size=(40, 6)).astype(np.float32) + 0.5)
    assert source.y is not None
    return Task(Inputs(source, CPU), torch.as_tensor(source.y), Inputs(target, CPU), N_CLASSES, CPU)


def phase_of(method: MDD | RDA, task: Task) -> Phase:
    """The second stage, with weights large enough for every term to matter."""
    torch.manual_seed(0)
    phase = method.adapt(task)
    with torch.no_grad():
        for name, parameter in phase.network.named_parameters():
            if parameter.ndim == 2 and not name.startswith("backbone."):
                parameter.normal_(0, 1 / math.sqrt(parameter.shape[1]))
    return phase


def draw_batch(task: Task, seed: int = 0, size: int = 12) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(task.source), generator=generator)[:size]
    target_rows = torch.randperm(len(task.target), generator=generator)[:size]
    return Batch(task.source.train(rows), task.labels[rows], rows, task.target.train(target_rows))


def outcome(phase: Phase, batch: Batch, progress: float) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """All terms, and the gradient of the loss for every parameter."""
    phase.network.train()
    phase.network.zero_grad()
    torch.manual_seed(1)
    terms = phase.loss(batch, torch.tensor(progress))
    terms["loss"].backward()
    gradients = {name: p.grad.clone() for name, p in phase.network.named_parameters() if p.grad is not None}
    assert len(gradients) == len(list(phase.network.parameters()))
    return {name: term.detach() for name, term in terms.items()}, gradients


def forward(network: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits of f and f' on [source; target], with no reversal in between."""
    features = network.bottleneck(network.backbone(torch.cat([batch.source, batch.target])))
    return network.f(features), network.adversary(features)


def smallest(losses: Tensor, count: int) -> list[int]:
    values = losses.detach().tolist()
    return sorted(range(len(values)), key=lambda i: values[i])[:count]


def game_of(
    logits: Tensor, adversary: Tensor, count: int, proxy: list[int], alpha: float, *, first_pair: bool = True
) -> Tensor:
    """Both pairs of the reference, section 2, from probabilities in float64."""
    labels = logits.detach().argmax(dim=1)
    agreement = torch.softmax(adversary.double(), dim=1).gather(1, labels[:, None])[:, 0]
    source, target = -agreement[:count].log(), agreement[count:]
    second = alpha * source[proxy].mean() - (1 - target).log().mean()
    return second + (alpha * source.mean() - source[proxy].mean() if first_pair else 0)


def by_name(network: nn.Module, prefix: str | tuple[str, ...], value: Tensor) -> dict[str, Tensor]:
    """The gradient of a value for the parameters of that name."""
    chosen = {name: p for name, p in network.named_parameters() if name.startswith(prefix)}
    gradients = torch.autograd.grad(value, list(chosen.values()), retain_graph=True)
    return dict(zip(chosen, gradients, strict=True))
