"""The ledger, the kept shares and the exam, each against the plainest possible version of itself."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from robustda.curriculum import LossLedger, balanced, exam, kept_share

quick = settings(deadline=None, max_examples=100)


@quick
@given(size=st.integers(1, 30), epochs=st.integers(1, 40), seed=st.integers(0, 2**32 - 1), curves=st.booleans())
def test_the_ledger_keeps_the_mean_over_epochs(size, epochs, seed, curves) -> None:
    losses = np.random.default_rng(seed).exponential(3, (epochs, size)).astype(np.float32)
    ledger = LossLedger(size, curves=curves)
    for epoch in losses:
        ledger.add(torch.from_numpy(epoch))
    assert ledger.epochs == epochs
    np.testing.assert_allclose(ledger.mean.numpy(), losses.astype(np.float64).mean(axis=0), rtol=1e-12)
    if curves:
        assert ledger.curves is not None
        assert np.array_equal(torch.stack(ledger.curves).numpy(), losses)
    else:
        assert ledger.curves is None


def test_the_ledger_holds_one_number_an_example_however_many_epochs() -> None:
    ledger = LossLedger(1000)
    for _ in range(50):
        ledger.add(torch.rand(1000))
    assert sum(tensor.numel() for tensor in ledger.state().values()) == 1001


@pytest.mark.parametrize("curves", [False, True])
@pytest.mark.parametrize("stop", [0, 1, 4, 7])
def test_the_ledger_goes_on_where_its_state_left_off(stop: int, curves: bool) -> None:
    losses = torch.rand(7, 5)
    whole, second = LossLedger(5, curves=curves), LossLedger(5, curves=curves)
    for epoch in losses[:stop]:
        whole.add(epoch)
    state = whole.state()
    for epoch in losses[stop:]:
        whole.add(epoch)
    second.load(state)
    for epoch in losses[stop:]:
        second.add(epoch)
    assert torch.equal(second.mean, whole.mean)
    assert second.epochs == whole.epochs == 7
    if curves:
        assert torch.equal(torch.stack(second.curves or []), losses)
        assert torch.equal(torch.stack(whole.curves or []), losses)


def test_what_the_ledger_gives_away_does_not_change_behind_ones_back() -> None:
    ledger = LossLedger(2)
    ledger.add(torch.tensor([1.0, 2.0]))
    state = ledger.state()
    ledger.add(torch.tensor([3.0, 4.0]))
    assert state["mean"].tolist() == [1, 2]


def test_the_ledger_holds_on_to_no_graph() -> None:
    ledger = LossLedger(3, curves=True)
    ledger.add(2 * torch.ones(3, requires_grad=True))
    assert not ledger.mean.requires_grad


@pytest.mark.parametrize("shape", [(2,), (4,), (3, 1), ()])
def test_the_ledger_refuses_losses_of_another_number_of_examples(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ledger holds 3 examples"):
        LossLedger(3).add(torch.zeros(shape))


@pytest.mark.parametrize(
    ("rate", "paper", "authors"),
    [(0.0, 1.0, 0.9), (0.2, 0.76, 0.72), (0.4, 0.52, 0.52), (0.6, 0.32, 0.28), (0.8, 0.16, 0.04), (1.0, 0.0, 0.0)],
)
def test_kept_share_of_both_published_rules(rate: float, paper: float, authors: float) -> None:
    rates = torch.tensor([rate], dtype=torch.float64)
    assert kept_share(rates, "paper").item() == pytest.approx(paper)
    assert kept_share(rates, "authors").item() == pytest.approx(authors)
    assert kept_share(rates, "plain").item() == pytest.approx(1 - rate)


@quick
@given(rate=st.floats(0, 1))
def test_kept_share_stays_a_share_and_the_rules_in_their_order(rate) -> None:
    rates = torch.tensor([rate], dtype=torch.float64)
    paper, authors, plain = (kept_share(rates, rule).item() for rule in ("paper", "authors", "plain"))
    assert 0 <= authors <= paper <= plain <= 1
    assert paper == pytest.approx(max(1 - 1.2 * rate, 0.8 * (1 - rate)), abs=1e-12)
    assert authors == pytest.approx(max(0, min(1 - 1.2 * rate, 0.9 * (1 - rate))), abs=1e-12)
    # Both are 1 − 1.2r from a third to a half, and nowhere else are they the same.
    if 1 / 3 <= rate <= 1 / 2:
        assert paper == pytest.approx(authors, abs=1e-12)
    elif rate < 0.333 or 0.501 < rate < 0.999:
        assert paper > authors + 1e-5


def test_kept_share_of_impossible_rates_stays_a_share() -> None:
    rates = torch.tensor([-0.5, 1.5])
    for rule in ("paper", "authors", "plain"):
        assert bool(((kept_share(rates, rule) >= 0) & (kept_share(rates, rule) <= 1)).all())


# Few values make ties; a keep in hundredths makes products that are whole numbers.
losses_and_labels = st.lists(
    st.tuples(st.integers(0, 12).map(lambda n: n / 4) | st.floats(0, 30), st.integers(0, 5)), min_size=1, max_size=60
)
shares = st.lists(st.integers(0, 100), min_size=6, max_size=6)


@settings(deadline=None, max_examples=300)
@given(examples=losses_and_labels, hundredths=shares, mode=st.sampled_from(["classwise", "offline"]))
def test_the_exam_agrees_with_a_loop_over_the_classes(examples, hundredths, mode) -> None:
    losses, labels = [loss for loss, _ in examples], [label for _, label in examples]
    trust, threshold, rank = plain_exam(losses, labels, [Fraction(n, 100) for n in hundredths], mode)
    got = hold(losses, labels, hundredths, mode)
    assert got.trust.dtype == torch.bool
    assert got.trust.tolist() == trust
    assert got.threshold.tolist() == threshold
    assert got.rank.tolist() == rank


@quick
@given(examples=losses_and_labels, hundredths=shares, data=st.data(), mode=st.sampled_from(["classwise", "offline"]))
def test_the_order_of_the_examples_does_not_matter(examples, hundredths, data, mode) -> None:
    order = data.draw(st.permutations(range(len(examples))))
    losses, labels = [loss for loss, _ in examples], [label for _, label in examples]
    got = hold(losses, labels, hundredths, mode)
    moved = hold([losses[i] for i in order], [labels[i] for i in order], hundredths, mode)
    assert moved.trust.tolist() == [bool(got.trust[i]) for i in order]
    assert moved.threshold.tolist() == [float(got.threshold[i]) for i in order]
    if len(set(losses)) == len(losses):
        assert moved.rank.tolist() == [int(got.rank[i]) for i in order]


@settings(deadline=None, max_examples=200)
@given(examples=losses_and_labels, hundredths=shares, data=st.data(), mode=st.sampled_from(["classwise", "offline"]))
def test_the_doubted_rank_behind_all_others_of_their_class(examples, hundredths, data, mode) -> None:
    losses, labels = [round(64 * loss) / 64 for loss, _ in examples], [label for _, label in examples]  # sums are exact
    doubted = data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels)))
    keep = torch.tensor(hundredths, dtype=torch.float64) / 100
    result = exam(
        torch.tensor(losses, dtype=torch.float64),
        torch.tensor(labels),
        keep,
        mode=mode,
        doubted=torch.tensor(doubted),
    )
    behind = [loss + 1000 * doubt for loss, doubt in zip(losses, doubted, strict=True)]
    trust, _, rank = plain_exam(behind, labels, [Fraction(n, 100) for n in hundredths], mode)
    assert result.trust.tolist() == trust
    assert result.rank.tolist() == rank
    # The threshold is that of whoever is not doubted, so that losses and thresholds can be compared.
    for loss, threshold, trusted, doubt in zip(losses, result.threshold.tolist(), trust, doubted, strict=True):
        assert doubt or trusted == (loss <= threshold)


def test_every_class_keeps_at_least_one_and_a_class_without_examples_does_no_harm() -> None:
    labels = torch.tensor([0, 0, 0, 2, 3, 3])
    losses = torch.tensor([3.0, 1.0, 2.0, 9.0, 5.0, 4.0])
    result = exam(losses, labels, torch.zeros(5, dtype=torch.float64))
    assert result.trust.tolist() == [False, True, False, True, False, True]
    assert result.threshold.tolist() == [1, 1, 1, 9, 4, 4]
    assert result.rank.tolist() == [2, 0, 1, 0, 1, 0]
    assert bool(exam(losses, labels, torch.ones(5, dtype=torch.float64)).trust.all())


def test_whoever_ties_with_the_threshold_is_trusted() -> None:
    result = exam(torch.tensor([1.0, 2.0, 2.0, 2.0, 3.0]), torch.zeros(5, dtype=torch.long), torch.tensor([0.4]))
    assert result.trust.tolist() == [True, True, True, True, False]


def test_offline_has_one_threshold_where_classwise_has_one_a_class() -> None:
    losses, labels = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0, 0, 1, 1])
    keep = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert exam(losses, labels, keep).trust.tolist() == [True, False, True, False]
    assert exam(losses, labels, keep, mode="offline").trust.tolist() == [True, True, False, False]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("rule", ["paper", "authors", "plain"])
def test_a_share_that_makes_a_whole_number_loses_no_example_to_rounding(rule: str, dtype: torch.dtype) -> None:
    exact = {
        "paper": lambda r: max(1 - Fraction(6, 5) * r, Fraction(4, 5) * (1 - r)),
        "authors": lambda r: min(1 - Fraction(6, 5) * r, Fraction(9, 10) * (1 - r)),
        "plain": lambda r: 1 - r,
    }[rule]
    wrong = []
    for size in (10, 25, 50, 100, 225, 400, 1000):
        losses, labels = torch.arange(size, dtype=torch.float64), torch.zeros(size, dtype=torch.long)
        for twentieths in range(17):
            rate = Fraction(twentieths, 20)
            keep = kept_share(torch.tensor([float(rate)], dtype=dtype), rule)
            kept, expected = int(exam(losses, labels, keep).trust.sum()), max(1, math.floor(size * exact(rate)))
            if kept != expected:
                wrong.append((size, float(rate), kept, expected))
    assert wrong == []


def test_many_examples_and_classes_take_memory_for_the_examples_only() -> None:
    size, n_classes = 200_000, 1000
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, n_classes, (size,), generator=generator)
    losses = torch.rand(size, generator=generator, dtype=torch.float64)
    keep = torch.full((n_classes,), 0.5, dtype=torch.float64)
    with Largest() as watch:
        result = exam(losses, labels, keep)
    assert watch.numel <= size
    counts = torch.bincount(labels, minlength=n_classes)
    assert torch.equal(torch.bincount(labels[result.trust], minlength=n_classes), counts // 2)


class Largest(TorchDispatchMode):
    """The number of elements in the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return made


def hold(losses: list[float], labels: list[int], hundredths: list[int], mode: Any) -> Any:
    keep = torch.tensor(hundredths, dtype=torch.float64) / 100
    return exam(torch.tensor(losses, dtype=torch.float64), torch.tensor(labels), keep, mode=mode)


def plain_exam(
    losses: list[float], labels: list[int], keep: list[Fraction], mode: str
) -> tuple[list[bool], list[float], list[int]]:
    """Section 3.1 word for word, one class at a time, in exact arithmetic."""
    if mode == "offline":
        keep = [sum((keep[k] for k in labels), Fraction(0)) / len(labels)]
        labels = [0] * len(labels)
    trust, threshold, rank = [False] * len(labels), [math.nan] * len(labels), [-1] * len(labels)
    for k in set(labels):
        members = sorted((i for i in range(len(labels)) if labels[i] == k), key=lambda i: (losses[i], i))
        count = max(1, math.floor(len(members) * keep[k]))
        gamma = losses[members[count - 1]]
        for place, i in enumerate(members):
            rank[i], threshold[i], trust[i] = place, gamma, losses[i] <= gamma
    return trust, threshold, rank


@given(st.data())
def test_balanced_rows_give_every_class_its_weight_back(data: st.DataObject) -> None:
    labels = torch.tensor(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=60)))
    trusted = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels))))
    rows = trusted.nonzero()[:, 0]
    drawn = balanced(rows, labels, seed=data.draw(st.integers(0, 9))) if len(rows) else rows
    assert set(drawn.tolist()) == set(rows.tolist())
    for label in labels.unique().tolist():
        own = drawn[labels[drawn] == label]
        if (labels[rows] == label).any():
            assert len(own) == int((labels == label).sum())
            times = own.unique(return_counts=True)[1]
            assert int(times.max() - times.min()) <= 1
