"""Clarity: the confusion it makes small, what it believes, its frozen and its tuned strength."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import robustda
from robustda import Clarity, Domain
from robustda.bench.data import noisy_domain, target_domain
from robustda.data.batches import Inputs
from robustda.description import describe_all
from robustda.engine import Stepper
from robustda.errors import RobustDAWarning
from robustda.losses import class_confusion, class_surplus, entropy
from robustda.methods.opinions import TwoOpinions
from robustda.methods.task import Batch, Phase, Task
from robustda.nets import Identity, create_backbone
from test_every_method import QUIET, blobs

BRIEF = {"width": 32, "head_steps": 60, "steps": 6, "batch_size": 16, "learning_rate": 0.01}


class Normed(nn.Module):
    """A network with batch norm, which counts what goes through it in training and in prediction."""

    def __init__(self, inputs: int = 16) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(inputs, 24), nn.BatchNorm1d(24), nn.ReLU())
        self.passes = {True: 0, False: 0}

    def forward(self, x: Tensor) -> Tensor:
        self.passes[self.training] += 1
        return self.layers(x)  # type: ignore[no-any-return]


def inner(method: robustda.Method) -> Normed:
    """The network that the method has inside as its backbone: a copy of the one that it was given."""
    found = next(module for module in method.network_.backbone.modules() if isinstance(module, Normed))
    return found


def by_hand(logits: np.ndarray, temperature: float) -> float:
    """Class confusion as its paper writes it: entropies, weights, and the rows of a matrix, one after the other."""
    size, classes = logits.shape
    p = np.exp(logits / temperature)
    p /= p.sum(axis=1, keepdims=True)
    weights = 1 + np.exp((p * np.log(p)).sum(axis=1))
    weights *= size / weights.sum()
    matrix = np.zeros((classes, classes))
    for i in range(size):
        matrix += weights[i] * np.outer(p[i], p[i])
    matrix /= matrix.sum(axis=1, keepdims=True)
    return float((matrix.sum() - np.trace(matrix)) / classes)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_class_confusion_is_the_papers(temperature: float) -> None:
    logits = np.random.default_rng(0).normal(scale=3, size=(20, 5))
    found = class_confusion(torch.from_numpy(logits), temperature)
    assert float(found) == pytest.approx(by_hand(logits, temperature), abs=1e-12)


def test_confusion_is_least_where_predictions_are_sure_and_none_the_most() -> None:
    sure, unsure = 60 * torch.eye(4), torch.zeros(4, 4)
    assert float(class_confusion(sure)) == pytest.approx(0, abs=1e-6)
    assert float(class_confusion(unsure)) == pytest.approx(3 / 4)
    assert class_confusion(1e4 * torch.eye(4).half()).isfinite()


def test_both_opinions_are_multiplied() -> None:
    method = Clarity(**BRIEF, backbone="identity")
    network = method.network((6,), 3).eval()
    x = torch.randn(5, 6)
    first = torch.log_softmax(network.first(x), dim=1)
    assert network.members is not None
    # members who have found nothing out yet have no say
    torch.testing.assert_close(torch.softmax(network(x), dim=1), torch.softmax(first / 2, dim=1))
    rng = torch.Generator().manual_seed(0)
    for tensor in network.members.state_dict().values():
        tensor.copy_(torch.randn(tensor.shape, generator=rng))
    torch.testing.assert_close(network(x), first / 2 + network.members(x))
    assert Clarity(**BRIEF, voices="one").network((6,), 3).members is None


def test_features_have_one_length_whatever_their_scale() -> None:
    network = TwoOpinions(Identity(6), 3, 8, 2).eval()
    x = torch.randn(5, 6)
    torch.testing.assert_close(network(x), network(1000 * x))


def test_heads_learn_by_themselves_and_what_they_say_is_averaged() -> None:
    network = TwoOpinions(Identity(6), 3, 8, 4).eval()
    x = torch.randn(5, 6, requires_grad=True)
    every = network.each(x)
    assert len({tuple(logits.flatten().tolist()) for logits in every}) == 4
    mean = torch.stack([torch.log_softmax(logits, dim=1) for logits in every]).mean(dim=0)
    torch.testing.assert_close(network.first(x), mean)
    slopes = [torch.autograd.grad(logits.sum(), x, retain_graph=True)[0] for logits in every]
    weights = [list(head.parameters()) for head in network.f.heads]  # type: ignore[union-attr]
    alone = [
        torch.autograd.grad(logits.sum(), own, retain_graph=True) for logits, own in zip(every, weights, strict=True)
    ]
    torch.stack([logits.sum() for logits in every]).sum().backward()
    # a head as fast as without the others, what is below all of them as from one
    torch.testing.assert_close(x.grad, torch.stack(slopes).sum(dim=0))
    for own, gradients in zip(weights, alone, strict=True):
        torch.testing.assert_close([parameter.grad for parameter in own], list(gradients))
    torch.testing.assert_close(
        4 * slopes[0],
        torch.autograd.grad(network.f.heads[0](network.bottleneck(x)[:, :8]).sum(), x)[0],  # type: ignore[index, union-attr, operator]
    )


def test_mends_and_leaves_out_labels_and_learns_from_the_rest(tmp_path: Path) -> None:
    source, target = blobs(n=400, target=200, noise=0.3)
    method = Clarity(width=64, head_steps=300, batch_size=32).fit(source, target, out=tmp_path / "run", **QUIET)
    assert method.summary_["target_accuracy"] > 0.9
    wrong = np.arange(400) % 4 != source.y  # the blobs' classes go round
    assert (method.trust_[wrong] == 0).mean() > 0.8
    assert (method.trust_[~wrong] == 1).mean() > 0.9
    assert method.noise_rate_ == pytest.approx(wrong.mean(), abs=0.08)
    learned = method.learned_as_
    assert (learned[method.trust_ == 1] == source.y[method.trust_ == 1]).all()
    assert (learned[wrong] == np.arange(400)[wrong] % 4).mean() > 0.6
    assert method.summary_["mended_share"] == np.mean((learned >= 0) & (learned != source.y)) > 0
    table = pd.read_csv(tmp_path / "run" / "trust.csv", dtype=str, keep_default_na=False)
    assert table["learned_as"].tolist() == [*np.append(source.classes.astype(str), "")[learned]]
    np.testing.assert_array_equal(robustda.load(tmp_path / "run", device="cpu").learned_as_, learned)
    believing = Clarity(width=64, head_steps=300, batch_size=32, clean=False).fit(source, target, **QUIET)
    assert not hasattr(believing, "trust_")


def lessons_of(method: Clarity, source: Domain, target: Domain, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The labels that each head is taught, of all source examples in order."""
    taught: dict[int, dict[int, int]] = {}
    rows: list[list[int]] = []
    whole = method._phase

    def phase(*given: Any) -> Phase:
        made = whole(*given)

        def loss(batch: Batch, progress: torch.Tensor) -> dict[str, torch.Tensor]:
            rows.append(batch.rows.tolist())
            return made.loss(batch, progress)

        return replace(made, loss=loss)

    risks = iter(range(10**9))

    def risk(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        head = next(risks) % method.heads
        taught.setdefault(head, {}).update(zip(rows[-1], labels.tolist(), strict=True))
        return 0 * logits.sum()

    monkeypatch.setattr(method, "_phase", phase)
    monkeypatch.setattr(method, "_risk", risk)
    method.fit(source, target, **QUIET)
    return [np.array([taught[head].get(row, -1) for row in range(len(source))]) for head in range(method.heads)]


def test_heads_learn_in_turn_from_what_is_believed_and_from_the_labels_as_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = blobs(n=400, target=100, noise=0.3)
    assert source.y is not None
    method = Clarity(width=16, heads=4, head_steps=60, batch_size=64, members=1)
    every = lessons_of(method, source, target, monkeypatch)
    right = np.arange(400) % 4
    assert (every[2] == source.y).all()
    np.testing.assert_array_equal(every[0], every[3])
    np.testing.assert_array_equal(every[0], method.learned_as_)
    for mended in every[:2]:
        assert (mended == right).mean() > (source.y == right).mean() + 0.1
    alone = Clarity(width=16, heads=3, head_steps=60, batch_size=64, members=1, readings="one")
    for own in lessons_of(alone, source, target, monkeypatch):
        np.testing.assert_array_equal(own, method.learned_as_)
    believing = Clarity(width=16, heads=3, head_steps=60, batch_size=64, members=1, clean=False)
    for own in lessons_of(believing, source, target, monkeypatch):
        assert (own == source.y).all()


def test_a_backbone_that_knows_nothing_is_taught_what_is_believed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = rng.integers(0, 60, size=(120, 12, 12, 3)).astype(np.uint8)
    x[np.arange(120), 4 * y, :, 0] = 250  # a bright row says which class
    given = np.where(rng.random(120) < 0.25, (y + 1) % 3, y)
    source, target = Domain.from_arrays(x, given), Domain.from_arrays(x[:60], y[:60])
    method = Clarity(width=8, steps=40, batch_size=32, augment="none")
    first, *others = lessons_of(method, source, target, monkeypatch)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_says_how_much_of_the_target_should_be_right_and_is_as_sure_as_that() -> None:
    source, target = blobs(n=400, target=300, noise=0.3)
    method = Clarity(width=64, head_steps=300, batch_size=32).fit(source, target, **QUIET)
    expected, true = method.summary_["expected_accuracy"], method.summary_["target_accuracy"]
    assert expected["low"] <= true <= expected["high"]
    assert abs(expected["value"] - true) < 0.06
    assert method.predict_proba(target).max(axis=1).mean() == pytest.approx(expected["value"], abs=0.01)


def test_a_network_that_was_selected_has_its_second_opinion() -> None:
    source, target = blobs(n=200, target=100)
    how = {**QUIET, "eval_every": 20, "select": "im"}
    method = Clarity(**BRIEF).fit(source, target, **how)
    network = method.network_
    assert isinstance(network, TwoOpinions)
    assert network.members is not None
    assert all(tensor.abs().sum() > 0 for tensor in network.members.state_dict().values())
    assert method.predict_proba(target).max(axis=1).mean() == pytest.approx(
        method.summary_["expected_accuracy"]["value"], abs=0.02
    )


def test_warns_where_little_can_be_right() -> None:
    """The target is the source turned round in space: nothing carries over, and other classifiers do not agree."""
    rng = np.random.default_rng(0)
    centres, codes = rng.normal(size=(30, 64)), np.arange(300) % 30
    source = Domain.from_arrays((centres[codes] + rng.normal(size=(300, 64))).astype(np.float32), codes)
    turn = np.linalg.qr(rng.normal(size=(64, 64)))[0]
    target = Domain.from_arrays(((centres[codes] + rng.normal(size=(300, 64))) @ turn).astype(np.float32))
    with pytest.warns(robustda.RobustDAWarning, match="of the target should be right"):
        method = Clarity(**BRIEF).fit(source, target, **QUIET)
    assert method.summary_["expected_accuracy"]["value"] < 0.5


def test_what_a_person_decided_is_believed(tmp_path: Path) -> None:
    source, target = blobs(n=200, target=60, noise=0.3)
    doubted = np.flatnonzero(Clarity(**BRIEF).fit(source, target, **QUIET).trust_ == 0)
    kept = source.ids[doubted[:5]]
    lines = ["id,decision,label", *(f"{name},keep," for name in kept)]
    (tmp_path / "decisions.csv").write_text("\n".join(lines) + "\n")
    decided = Clarity(**BRIEF).fit(source, target, decisions=tmp_path / "decisions.csv", **QUIET)
    assert decided.trust_[np.isin(source.ids, kept)].tolist() == [1] * 5


def test_a_pretrained_backbone_sees_every_example_once_and_stays_as_it_is(tmp_path: Path) -> None:
    source, target = blobs(n=200, target=60)
    own = Normed()
    before = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    method = Clarity(**BRIEF, backbone=own).fit(source, target, out=tmp_path / "run", **QUIET)
    used = inner(method)
    assert used.passes[True] == 0, "the head learns on features that were made once"
    assert 0 < used.passes[False] < 20
    assert all(torch.equal(used.state_dict()[name], tensor) for name, tensor in before.items())
    loaded = robustda.load(tmp_path / "run", device="cpu", backbone=Normed())
    np.testing.assert_array_equal(loaded.predict_proba(target), method.predict_proba(target))


def test_photographs_are_seen_from_both_sides(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (40, 72, 72, 3)).astype(np.uint8)
    pixels[:20, :, :, 0] //= 4  # the second class is red
    domain = Domain.from_arrays(pixels, np.arange(40) // 20)
    turned = Domain.from_arrays(pixels[:, :, ::-1], domain.labels)
    images = torch.rand(3, 3, 63, 63)
    how = {**BRIEF, "backbone": create_backbone("resnet10t", (72, 72, 3), "random"), "image_size": 72}
    method = Clarity(**how).fit(domain, domain.unlabelled(), **QUIET)
    np.testing.assert_allclose(method.predict_proba(turned), method.predict_proba(domain), atol=1e-5)
    for changed, alike in (({}, True), ({"mirror": False}, False), ({"augment": "none"}, False)):
        network = Clarity(**how, **changed).network((72, 72, 3), 2).eval()
        with torch.no_grad():
            assert torch.allclose(network.described(images), network.described(images.flip(3)), atol=1e-5) == alike


def test_features_of_bfloat16_products_are_nearly_those_of_float32() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 72, 72, 3)).astype(np.uint8)
    backbone = create_backbone("resnet10t", (72, 72, 3), "random")
    network = Clarity(**BRIEF, backbone=backbone).network((72, 72, 3), 2).eval()
    inputs = Inputs(Domain.from_arrays(pixels), torch.device("cpu"))
    plain, quick = (describe_all(network.backbone, inputs, low_precision=way) for way in (False, True))
    assert plain.dtype == quick.dtype == np.float32
    assert 0 < np.linalg.norm(plain - quick) < 0.03 * np.linalg.norm(plain)
    assert not network.backbone.low_precision


def test_marked_examples_are_judged_among_their_own_kind() -> None:
    """Each corrupted example looks like the next class: beside its like its label is right, beside the others wrong."""
    rng = np.random.default_rng(1)
    y = np.arange(400) % 4
    odd = rng.random(400) < 0.3
    centres = 4 * rng.normal(size=(4, 16))
    x = (centres[(y + odd) % 4] + rng.normal(size=(400, 16))).astype(np.float32)
    source, target = Domain.from_arrays(x, y, corrupted=odd), Domain.from_arrays(x[~odd])
    trust = Clarity(**BRIEF).fit(source, target, **QUIET).trust_
    assert trust[odd].mean() > 0.9
    with pytest.warns(RobustDAWarning, match="wrong by a rule"):  # which is what it looks like
        ignoring = Clarity(**BRIEF, corrupted="ignore").fit(source, target, **QUIET).trust_
    assert ignoring[odd].mean() < 0.1
    assert min(trust[~odd].mean(), ignoring[~odd].mean()) > 0.9


def believed_of(x: np.ndarray, given: np.ndarray, odd: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """What Clarity believes each of these to be of, −1 for nothing; and whose label it trusts."""
    domain, device = Domain.from_arrays(x, given), torch.device("cpu")
    inputs, labels = Inputs(domain, device), torch.from_numpy(given)
    task = Task(source=inputs, labels=labels, target=inputs, n_classes=4, device=device, corrupted=odd)
    codes = Clarity(**BRIEF).believed(x, task, lambda some: some).codes.numpy()
    return codes, task.memory["trust"].numpy() > 0


@pytest.mark.parametrize(("wrong", "kept"), [(0.0, True), (0.25, False)])
def test_corrupted_examples_are_believed_only_where_nearly_all_labels_are_right(wrong: float, kept: bool) -> None:
    """Features of the corrupted say nothing of their class, so that their labels cannot be borne out."""
    rng = np.random.default_rng(2)
    true = np.arange(600) % 4
    odd = rng.random(600) < 0.3
    x = (np.where(odd[:, None], 0, 4 * rng.normal(size=(4, 16))[true]) + rng.normal(size=(600, 16))).astype(np.float32)
    given = np.where(rng.random(600) < wrong, (true + rng.integers(1, 4, 600)) % 4, true)
    believed, trust = believed_of(x, given, odd)
    np.testing.assert_array_equal(trust, believed == given)
    assert (believed[odd] >= 0).mean() > 0.95 if kept else (believed[odd] >= 0).mean() < 0.05
    assert (believed[~odd] == true[~odd]).mean() > 0.95
    assert (believed_of(x, given, None)[0][odd] >= 0).mean() > 0.5, (
        "who is not known to be corrupted is judged as others"
    )


def test_tuning_goes_on_from_the_head_and_keeps_the_statistics(tmp_path: Path) -> None:
    source, target = blobs(n=200, target=60)
    own = Normed()
    before = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    method = Clarity(**BRIEF, backbone=own, tune=True).fit(source, target, out=tmp_path / "run", **QUIET)
    assert method.history_["phase"].unique().tolist() == ["learn", "further"]
    after = inner(method).state_dict()
    assert not torch.equal(after["layers.0.weight"], before["layers.0.weight"])
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(after[f"layers.1.{name}"], before[f"layers.1.{name}"], rtol=0, atol=0)
    frozen = Clarity(**BRIEF, backbone=Normed()).fit(source, target, **QUIET)
    agree = (method.predict(target) == frozen.predict(target)).mean()
    assert agree > 0.8, "six small steps from the head that was learned do not change much"


class Seen(nn.Module):
    """A little of a photograph: its colours by quarters, behind a convolution with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Conv2d(3, 6, 3, stride=4, bias=False), nn.BatchNorm2d(6), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(self.layers(x), 2).flatten(1)


def quarters(seed: int, size: int = 72) -> Domain:
    """Images of three classes, by which quarter is bright."""
    rng = np.random.default_rng(seed)
    codes = np.arange(90) % 3
    images = (90 * rng.random((90, size, size, 3))).astype(np.uint8)
    half = size // 2
    for k, (top, left) in enumerate(((0, 0), (half, 0), (half, half))):
        images[codes == k, top : top + half, left : left + half, k] += 120
    return Domain.from_arrays(images, codes)


def test_where_images_are_tuned_the_members_stay_with_the_backbone_as_it_came(tmp_path: Path) -> None:
    source, target = quarters(0), quarters(1)
    own = Seen()
    method = Clarity(**BRIEF, backbone=own, tune=True, augment="none", mirror=False)
    method.fit(source, target, out=tmp_path / "run", **QUIET)
    network = method.network_
    assert isinstance(network, TwoOpinions)
    assert network.as_it_came is not None
    assert network.members is not None
    for name, tensor in own.state_dict().items():
        torch.testing.assert_close(network.as_it_came.state_dict()[f"model.{name}"], tensor, rtol=0, atol=0)
    assert not torch.equal(network.backbone.state_dict()["model.layers.0.weight"], own.state_dict()["layers.0.weight"])
    assert not network.train().as_it_came.training  # type: ignore[union-attr]
    inputs = Inputs(target, torch.device("cpu"), crop=63)
    x = inputs.test(torch.arange(90))
    with torch.no_grad():
        described = network.eval().described(x)
        tuned, came = described.chunk(2, dim=1)
        torch.testing.assert_close(came, network.as_it_came(x))
        alone = network.first(tuned).log_softmax(dim=1) / 2 + network.members(came)
        torch.testing.assert_close(network(x), alone / network.temperature)
        assert network.features(x).shape == (90, 3 * 32)
    assert (method.predict(target) == target.y).mean() > 0.9
    again = robustda.load(tmp_path / "run", backbone=Seen())
    np.testing.assert_allclose(again.predict_proba(target), method.predict_proba(target), atol=1e-6)
    one = Clarity(**BRIEF, backbone=own, tune=True, voices="one", augment="none").network((63, 63, 3), 3)
    assert one.as_it_came is None, "where nobody goes by it it is not kept"


def test_batch_norm_learns_unless_it_is_to_keep() -> None:
    source, target = blobs(n=120, target=60)
    moved = {}
    for choice in ("learn", "keep"):
        before = Normed().state_dict()["layers.1.running_mean"]
        method = robustda.MDD(width=16, steps=4, batch_size=16, backbone=Normed(), batch_norm=choice)
        after = inner(method.fit(source, target, **QUIET)).state_dict()["layers.1.running_mean"]
        moved[choice] = not torch.equal(after, before)
    assert moved == {"learn": True, "keep": False}


def stripes() -> tuple[Domain, Domain]:
    """Small images of three classes, each with a bright stripe of its own; every other one is the target."""
    rng = np.random.default_rng(0)
    codes = np.arange(120) % 3
    images = (40 * rng.random((120, 16, 16, 3))).astype(np.uint8)
    for k in range(3):
        images[codes == k, :, 5 * k : 5 * k + 5] += 150
    return Domain.from_arrays(images, codes), Domain.from_arrays(images[::2], codes[::2])


@pytest.mark.parametrize(("weight", "least", "most"), [(0.0, 0.78, 0.82), (1.0, 0.45, 0.6)])
def test_examples_in_doubt_go_to_the_class_that_lacks_some(weight: float, least: float, most: float) -> None:
    """Of 200 examples 100 are of class 0, 40 of class 1 and 60 in between, a little nearer to 0."""
    lean = torch.tensor([2.0] * 100 + [0.25] * 60 + [-2.0] * 40)
    logits = torch.stack([lean, -lean], dim=1).requires_grad_()
    optimiser = torch.optim.SGD([logits], lr=20.0)
    wanted = torch.tensor([0.5, 0.5])
    seen = wanted.clone()
    for _ in range(300):
        optimiser.zero_grad()
        shares = logits.softmax(dim=1).mean(dim=0)
        seen.lerp_(shares.detach(), 0.3)
        (entropy(logits).mean() + weight * class_surplus(shares, seen, wanted)).backward()
        optimiser.step()
    assert least <= float((logits.argmax(dim=1) == 0).float().mean()) <= most


def test_frequencies_are_held_at_first_where_a_backbone_knows_nothing() -> None:
    settings = {"width": 16, "steps": 40, "batch_size": 16, "learning_rate": 0.02, "augment": "none"}
    held = Clarity(**settings).fit(*stripes(), log_every=2, **QUIET)  # type: ignore[arg-type]
    curve = held.history_[held.history_["metric"] == "balance"]
    assert (curve[curve["step"] > 30]["value"] == 0).all()
    assert (curve[curve["step"] <= 16]["value"] != 0).any()
    for other in (
        Clarity(**settings, balance=0.0).fit(*stripes(), **QUIET),  # type: ignore[arg-type]
        Clarity(**BRIEF).fit(*blobs(n=120, target=60), **QUIET),  # type: ignore[arg-type]
    ):
        assert "balance" not in set(other.history_["metric"])


def test_a_resumed_run_goes_on_with_the_frequencies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    method = Clarity(width=16, steps=40, batch_size=16, learning_rate=0.02)
    how = QUIET | {"log_every": 5, "checkpoint_seconds": 0}
    whole = method.fit(*stripes(), **how).network_.state_dict()
    plain = Stepper.__call__

    def failing(self: Stepper, step: int) -> None:
        if step == 23:
            raise RuntimeError("a crash")
        plain(self, step)

    monkeypatch.setattr(Stepper, "__call__", failing)
    with pytest.raises(RuntimeError, match="a crash"):
        method.fit(*stripes(), out=tmp_path / "run", **how)
    monkeypatch.undo()
    resumed = method.fit(*stripes(), out=tmp_path / "run", **how).network_.state_dict()
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())


def test_a_backbone_that_knows_nothing_is_trained() -> None:
    source, target = stripes()
    for tune, phase in ((False, "learn"), (True, "further")):
        method = Clarity(width=16, steps=60, batch_size=16, learning_rate=0.02, augment="none", tune=tune)
        method.fit(source, target, **QUIET)
        assert method.network_.members is None
        assert method.summary_["target_accuracy"] > 0.9
        assert method.history_["phase"].unique().tolist() == [phase], "it is trained once"


@pytest.mark.skipif("ROBUSTDA_DATA" not in os.environ, reason="set ROBUSTDA_DATA to the folder with Office-31")
def test_office31_with_wrong_labels(tmp_path: Path) -> None:
    root = Path(os.environ["ROBUSTDA_DATA"])
    source = noisy_domain(root, "features", "dslr", "label", 0.4, "authors", tmp_path)
    target = target_domain(root, "features", "webcam", tmp_path)
    method = Clarity(head_steps=300).fit(source, target, **QUIET)
    assert method.summary_["target_accuracy"] > 0.93
