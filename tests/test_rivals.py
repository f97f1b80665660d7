"""What is peculiar to each rival: its game's gradients, its curriculum, its phases; and RDA's online variants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from robustda.alignment import Estimator
from robustda.data.batches import Inputs
from robustda.data.domain import Domain
from robustda.methods import ADDA, DAN, DANN, MDD, RDA, RTN, SPL, TCL, MentorNet, Method
from robustda.methods.base import Batch, Phase, Task
from robustda.methods.mentornet import Mentor, RunningQuantile, predefined_curriculum
from robustda.methods.spl import RunningLosses

CPU = torch.device("cpu")
QUIET: dict[str, Any] = {"device": "cpu", "progress": False, "tensorboard": False}


def task(n: int = 12, classes: int = 3, width: int = 5, seed: int = 0) -> Task:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, n, width)).astype(np.float32)
    labels = np.arange(n) % classes
    source, target = Domain.from_arrays(x[0], labels), Domain.from_arrays(x[1] + 1)
    return Task(Inputs(source, CPU), torch.as_tensor(labels), Inputs(target, CPU), classes, CPU)


def batch_of(given: Task, dtype: torch.dtype = torch.float32) -> Batch:
    rows = torch.arange(len(given.source))
    return Batch(given.source.train(rows).to(dtype), given.labels, rows, given.target.train(rows).to(dtype))


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
    (DANN(width=6, discriminator_width=4, dropout=0, beta=0.3, beta_speed=1e6), "discriminator", ("domain_loss",)),
    (TCL(width=6, discriminator_width=4, dropout=0, beta=0.3, beta_speed=1e6), "discriminator", ("domain_loss",)),
    (
        MDD(width=6, dropout=0, beta=0.3, beta_rise=0),
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


def test_adda_inverts_labels_and_freezes_source_and_head() -> None:
    torch.manual_seed(0)
    given = task()
    method = ADDA(width=6, discriminator_width=4, steps=10)
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
    terms = phase.loss(batch_of(given), torch.tensor(0.0))
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
    method = ADDA(width=6, discriminator_width=4, encoder_rate=0.2)
    network = method.network(given.source.example_shape, given.n_classes)
    groups = method.parameter_groups(network)
    assert [group["share"] for group in groups] == [1.0, 0.2]
    assert sum(p.numel() for group in groups for p in group["params"]) == sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
def test_the_log_names_the_estimator(estimator: Estimator) -> None:
    given = task()
    for method in (DAN(width=8, estimator=estimator), RTN(width=8, estimator=estimator)):
        terms = method.phases()[0](given).loss(batch_of(given), torch.tensor(0.5))
        assert f"mmd_{estimator}" in terms


def test_tcl_lets_all_through_while_it_warms_up() -> None:
    torch.manual_seed(0)
    given = task()
    phase = TCL(width=6, discriminator_width=4, class_threshold=0.9, warm_up=0.2).adapt(given)
    shares = [float(phase.loss(batch_of(given), torch.tensor(p))["kept_share"]) for p in (0.0, 0.19, 0.21, 1.0)]
    assert shares[:2] == [1, 1]
    assert shares[2:] == [0, 0]
    nothing = phase.loss(batch_of(given), torch.tensor(0.5))
    assert nothing["risk"].item() == 0
    assert nothing["loss"].isfinite()


def test_spl_weights_by_hand() -> None:
    running = RunningLosses(4, memory=0.5)
    infinite = running.threshold(torch.tensor(0.5))
    assert infinite.isinf()  # nothing is known yet: all are let in
    assert running.update(torch.tensor([0, 1, 2]), torch.tensor([1.0, 4.0, 2.0])).tolist() == [1, 4, 2]
    # A second visit averages with the first; a row that comes twice in a batch enters as its mean.
    assert running.update(torch.tensor([1, 3, 3]), torch.tensor([2.0, 5.0, 7.0])).tolist() == [3, 6, 6]
    running.rank()
    for share, below in [(0.0, []), (0.25, [0]), (0.5, [0, 2]), (0.75, [0, 1, 2]), (0.99, [0, 1, 2])]:
        easy = running.losses < running.threshold(torch.tensor(share))
        assert easy.nonzero()[:, 0].tolist() == below, share
    assert (running.losses < running.threshold(torch.tensor(1.0))).all()
    # λ stays as it was at the epoch's end, whatever the losses do meanwhile.
    before = running.threshold(torch.tensor(0.5))
    running.update(torch.tensor([0, 2]), torch.tensor([9.0, 9.0]))
    assert running.threshold(torch.tensor(0.5)) == before


def test_spl_starts_at_the_median_and_ends_with_all() -> None:
    method = SPL(first_share=0.5, all_in=0.8)
    shares = [float(method.share(torch.tensor(p))) for p in (0.0, 0.4, 0.8, 1.0)]
    assert shares == pytest.approx([0.5, 0.75, 1.0, 1.0])


def test_spl_prefers_right_labels() -> None:
    rng = np.random.default_rng(0)
    true = np.arange(400) % 4
    x = (rng.normal(size=(4, 12)) * 3)[true] + rng.normal(size=(400, 12))
    wrong = rng.random(400) < 0.3
    labels = np.where(wrong, (true + 1 + rng.integers(3, size=400)) % 4, true)
    source = Domain.from_arrays(x.astype(np.float32), labels)
    phases: list[Phase] = []

    class Watched(SPL):
        def train(self, task: Task) -> Phase:
            phases.append(super().train(task))
            return phases[0]

    Watched(width=32, steps=120, learning_rate=0.02).fit(source, source, **QUIET)
    losses = phases[0].stateful["running"].state()["losses"]
    easy = (losses < losses.median()).numpy()
    assert wrong[easy].mean() < 0.05 < wrong.mean()


def test_mentor_imitates_its_curriculum() -> None:
    """On fresh inputs, over the whole range of losses, distances, labels and progress."""
    left: dict[str, Tensor] = {}

    class Watched(MentorNet):
        def student(self, task: Task) -> Phase:
            left.update(task.memory)
            return super().student(task)

    source = Domain.from_arrays(np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32), np.arange(12) % 3)
    Watched(width=6, steps=1, mentor_steps=600).fit(source, source, **QUIET)
    mentor = Mentor(3)
    mentor.load_state_dict({name.removeprefix("mentor/"): tensor for name, tensor in left.items()})

    torch.manual_seed(12345)
    size = 5000
    losses, distances = 30 * torch.rand(size), 10 * torch.rand(size) - 5
    labels, shares = torch.randint(3, (size,)), torch.rand(size)
    with torch.no_grad():
        found = torch.sigmoid(mentor.logits(losses, distances, labels, shares))
    wanted = predefined_curriculum(distances, shares)
    assert float((found - wanted).abs().mean()) < 0.03
    assert float(((found > 0.5) == (wanted > 0.5)).float().mean()) > 0.98


def test_predefined_curriculum_by_hand() -> None:
    distances = torch.tensor([3.0, -1.0, 0.0, 0.1, 0.25, 2.0, -1.0])
    shares = torch.tensor([0.1, 0.5, 0.5, 0.5, 0.95, 0.95, 0.95])
    assert predefined_curriculum(distances, shares).tolist() == [1, 1, 1, 0, 0.75, 0, 1]


def test_running_quantile_by_hand() -> None:
    average = RunningQuantile(0.75, 0.9)
    losses = torch.tensor([4.0, 0.0, 2.0, 1.0, 3.0])
    assert float(average.update(losses, first=torch.tensor(True))) == 3
    assert float(average.update(losses + 1, first=torch.tensor(False))) == pytest.approx(0.9 * 3 + 0.1 * 4)


def test_rtn_predicts_with_the_target_classifier() -> None:
    torch.manual_seed(0)
    given = task()
    network = RTN(width=6, dropout=0, residual_scale=0.5).network(given.source.example_shape, given.n_classes).eval()
    x = batch_of(given).source
    target_logits = network(x)
    torch.testing.assert_close(network.source_logits(target_logits), target_logits)  # one and the same at first
    with torch.no_grad():
        network.residual[2].weight.normal_()
        network.residual[2].bias.normal_()
    torch.testing.assert_close(network(x), target_logits)
    expected = target_logits + 0.5 * network.residual(target_logits)
    torch.testing.assert_close(network.source_logits(target_logits), expected)


def test_rtn_loss_is_made_of_its_parts() -> None:
    torch.manual_seed(0)
    given = task()
    phase = RTN(width=6, mmd_weight=0.7, entropy_weight=0.2).adapt(given)
    terms = phase.loss(batch_of(given), torch.tensor(0.5))
    expected = terms["risk"] + 0.7 * terms["mmd_unbiased"] + 0.2 * 0.5 * terms["target_entropy"]
    torch.testing.assert_close(terms["loss"], expected)


def test_online_curriculum_by_hand() -> None:
    method = RDA(curriculum="online", online_threshold=1.0, online_warm_up=0.2)
    assert [phase.__name__ for phase in method.phases()] == ["adapt"]
    losses = torch.tensor([0.5, 1.0, 1.1])
    assert method.trusted_now(losses, torch.tensor(0.1)).tolist() == [1, 1, 1]
    assert method.trusted_now(losses, torch.tensor(0.2)).tolist() == [1, 1, 0]


@pytest.mark.parametrize("variant", ["authors", "paper"])
@pytest.mark.parametrize("options", [{}, {"del_pmd": True}, {"feature_noisy": "delete"}])
def test_online_training_runs(variant: Any, options: dict[str, Any]) -> None:
    given = task(n=20)
    phase = RDA(variant=variant, width=6, curriculum="online", **options).adapt(given)
    terms = phase.loss(batch_of(given), torch.tensor(0.9))
    terms["loss"].backward()
    assert terms["loss"].isfinite()
    assert float(terms["kept_share"]) <= 1


def test_deleting_feature_noisy_examples_takes_them_out_of_the_risk() -> None:
    given = task(n=20)
    settings: dict[str, Any] = {"width": 6, "del_ocl": True, "proxy_share": 0.5, "dropout": 0}
    risks = {}
    for choice in ("reserve", "delete"):
        torch.manual_seed(0)
        phase = RDA(feature_noisy=choice, **settings).adapt(given)
        network, batch = phase.network, batch_of(given)
        risks[choice] = phase.loss(batch, torch.tensor(1.0))["risk"].item()
        logits = network(torch.cat([batch.source, batch.target]))[:20]
        losses = torch.nn.functional.cross_entropy(logits, batch.labels, reduction="none").sort().values
        expected = losses.mean() if choice == "reserve" else losses[:10].mean()
        assert risks[choice] == pytest.approx(expected.item(), rel=1e-4)
    assert risks["delete"] < risks["reserve"]
