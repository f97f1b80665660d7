"""What is peculiar to each rival: its curriculum, its network, its phases; and RDA's online variants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from helpers import batch_of, task
from robustda.alignment import Estimator
from robustda.data.domain import Domain
from robustda.methods import DAN, RDA, RTN, SPL, TCL, MentorNet
from robustda.methods.base import Phase, Task
from robustda.methods.mentornet import Mentor, RunningQuantile, predefined_curriculum
from robustda.methods.spl import RunningLosses

QUIET: dict[str, Any] = {"device": "cpu", "progress": False, "tensorboard": False}


@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
def test_the_log_names_the_estimator(estimator: Estimator) -> None:
    given = task()
    for method in (DAN(width=8, estimator=estimator), RTN(width=8, estimator=estimator)):
        terms = method.phases()[0](given).loss(batch_of(given), torch.tensor(0.5))
        assert f"mmd_{estimator}" in terms


def test_tcl_lets_all_through_while_it_warms_up() -> None:
    torch.manual_seed(0)
    given = task()
    strict = {"width": 6, "discriminator_width": 4, "class_threshold": 0.9, "warm_up": 0.2}
    phase = TCL(**strict, least_share=0.0).adapt(given)
    shares = [float(phase.loss(batch_of(given), torch.tensor(p))["kept_share"]) for p in (0.0, 0.19, 0.21, 1.0)]
    assert shares[:2] == [1, 1]
    assert shares[2:] == [0, 0]
    nothing = phase.loss(batch_of(given), torch.tensor(0.5))
    assert nothing["risk"].item() == 0
    assert nothing["loss"].isfinite()
    some = TCL(**strict, least_share=0.25).adapt(given).loss(batch_of(given), torch.tensor(0.5))
    assert 0.25 <= float(some["kept_share"]) < 0.5


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


def test_the_student_is_weighted_by_the_mentor_it_was_left() -> None:
    torch.manual_seed(0)
    given = task()
    mentor = Mentor(3)
    torch.nn.init.normal_(mentor.out.weight)
    given.memory |= {f"mentor/{name}": tensor.clone() for name, tensor in mentor.state_dict().items()}
    phase = MentorNet(width=6, dropout=0).student(given)
    batch = batch_of(given)
    assert phase.loss(batch, torch.tensor(0.0))["kept_share"] == 1  # burn-in
    losses = F.cross_entropy(phase.network(batch.source), batch.labels, reduction="none")
    quantile = losses.sort().values[8]  # of twelve, the nearest to .75; the average has seen it twice
    weights = torch.sigmoid(mentor.logits(losses, losses - quantile, batch.labels, torch.full((12,), 0.5)))
    terms = phase.loss(batch, torch.tensor(0.5))
    assert terms["kept_share"].item() == pytest.approx(weights.mean().item(), rel=1e-4)
    assert terms["loss"].item() == pytest.approx(((weights * losses).sum() / weights.sum()).item(), rel=1e-4)


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
    phase = RTN(width=6, dropout=0, mmd_weight=0.7, entropy_weight=0.2).adapt(given)
    network: Any = phase.network
    torch.nn.init.normal_(network.residual[2].weight, 0, 5)
    batch = batch_of(given)
    terms = phase.loss(batch, torch.tensor(0.5))
    logits = network(torch.cat([batch.source, batch.target]))[:12]
    of_source = F.cross_entropy(network.source_logits(logits), batch.labels)
    torch.testing.assert_close(terms["risk"], of_source)
    assert not torch.allclose(of_source, F.cross_entropy(logits, batch.labels))
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
