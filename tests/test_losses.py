"""Every loss: against plain NumPy in float64, against finite differences, and where rounding bites."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from robustda.losses import (
    entropy,
    log_one_minus_softmax,
    margin_discrepancy,
    masked_mean,
    proxy_margin_discrepancy,
    proxy_mask,
    weighted_risk,
)

sizes = st.integers(1, 40)
class_counts = st.integers(2, 30)
scales = st.sampled_from([1e-3, 1.0, 20.0, 200.0])
seeds = st.integers(0, 2**32 - 1)
alphas = st.floats(1, 10)
# In float32 a logit of 200 is known to 1.5e-5.
precisions = st.sampled_from([(torch.float64, 1e-11), (torch.float32, 2e-4)])
quick = settings(deadline=None, max_examples=60)


@quick
@given(size=sizes, n_classes=class_counts, scale=scales, seed=seeds, precision=precisions)
def test_weighted_risk_is_the_weighted_mean_of_cross_entropies(size, n_classes, scale, seed, precision) -> None:
    dtype, within = precision
    logits, labels, rng = draw(size, n_classes, scale, seed)
    weights = rng.integers(0, 2, size) * rng.uniform(0.1, 2, size)
    losses = np_cross_entropy(logits, labels)
    given_logits, given_labels = torch.tensor(logits, dtype=dtype), torch.tensor(labels)
    assert float(weighted_risk(given_logits, given_labels)) == pytest.approx(losses.mean(), rel=within, abs=within)
    expected = (weights * losses).sum() / weights.sum() if weights.any() else 0.0
    got = weighted_risk(given_logits, given_labels, torch.tensor(weights))
    assert got.dtype == dtype
    assert float(got) == pytest.approx(expected, rel=within, abs=within)


@quick
@given(size=sizes, seed=seeds, kind=st.sampled_from(["floats", "booleans", "whole numbers"]))
def test_masked_mean_takes_any_kind_of_mask(size, seed, kind) -> None:
    rng = np.random.default_rng(seed)
    values, mask = rng.normal(size=size), rng.integers(0, 2, size)
    tensor = {"floats": torch.float32, "booleans": torch.bool, "whole numbers": torch.int64}[kind]
    got = float(masked_mean(torch.tensor(values), torch.tensor(mask).to(tensor)))
    assert got == pytest.approx(values[mask == 1].mean() if mask.any() else 0.0, abs=1e-12)


def test_an_empty_mask_gives_zero_and_no_gradient() -> None:
    values = torch.tensor([3.0, 4.0], requires_grad=True)
    mean = masked_mean(values, torch.zeros(2))
    mean.backward()
    assert mean.item() == 0
    assert values.grad is not None
    assert values.grad.tolist() == [0, 0]


@quick
@given(size=sizes, n_classes=class_counts, scale=scales, seed=seeds, precision=precisions)
def test_entropy(size, n_classes, scale, seed, precision) -> None:
    dtype, within = precision
    logits, _, _ = draw(size, n_classes, scale, seed)
    got = entropy(torch.tensor(logits, dtype=dtype))
    assert got.shape == (size,)
    np.testing.assert_allclose(got.numpy(), np_entropy(logits), rtol=within, atol=within)


def test_entropy_at_its_ends() -> None:
    assert entropy(torch.zeros(1, 7)).item() == pytest.approx(math.log(7))
    assert entropy(torch.tensor([[1000.0, 0.0, -1000.0]])).item() == 0


@quick
@given(size=sizes, n_classes=class_counts, scale=scales, seed=seeds, precision=precisions)
def test_log_one_minus_softmax(size, n_classes, scale, seed, precision) -> None:
    dtype, within = precision
    logits, labels, _ = draw(size, n_classes, scale, seed)
    got = log_one_minus_softmax(torch.tensor(logits, dtype=dtype), torch.tensor(labels))
    assert got.shape == (size,)
    assert bool((got <= 0).all())
    np.testing.assert_allclose(got.numpy(), np_log_one_minus_softmax(logits, labels), rtol=within, atol=within)


@quick
@given(
    sizes=st.tuples(sizes, sizes), n_classes=class_counts, scale=scales, seed=seeds, alpha=alphas, precision=precisions
)
def test_margin_discrepancy(sizes, n_classes, scale, seed, alpha, precision) -> None:
    dtype, within = precision
    source, source_labels, _ = draw(sizes[0], n_classes, scale, seed)
    target, target_labels, _ = draw(sizes[1], n_classes, scale, seed + 1)
    terms = margin_discrepancy(
        torch.tensor(source, dtype=dtype),
        torch.tensor(source_labels),
        torch.tensor(target, dtype=dtype),
        torch.tensor(target_labels),
        alpha=alpha,
    )
    expected = {
        "source_disparity": alpha * np_cross_entropy(source, source_labels).mean(),
        "target_disparity": -np_log_one_minus_softmax(target, target_labels).mean(),
    }
    assert_terms(terms, expected, within)


@quick
@given(
    sizes=st.tuples(sizes, sizes),
    n_classes=class_counts,
    scale=scales,
    seed=seeds,
    alpha=alphas,
    first_pair=st.booleans(),
    precision=precisions,
)
def test_proxy_margin_discrepancy(sizes, n_classes, scale, seed, alpha, first_pair, precision) -> None:
    dtype, within = precision
    source, source_labels, rng = draw(sizes[0], n_classes, scale, seed)
    target, target_labels, _ = draw(sizes[1], n_classes, scale, seed + 1)
    proxy = rng.integers(0, 2, sizes[0])
    proxy[rng.integers(sizes[0])] = 1
    terms = proxy_margin_discrepancy(
        torch.tensor(source, dtype=dtype),
        torch.tensor(source_labels),
        torch.tensor(proxy, dtype=dtype),
        torch.tensor(target, dtype=dtype),
        torch.tensor(target_labels),
        alpha=alpha,
        first_pair=first_pair,
    )
    losses = np_cross_entropy(source, source_labels)
    in_proxy = losses[proxy == 1].mean()
    expected = {
        "source_disparity": alpha * in_proxy,
        "target_disparity": -np_log_one_minus_softmax(target, target_labels).mean(),
    }
    if first_pair:
        expected["first_pair"] = alpha * losses.mean() - in_proxy
    assert_terms(terms, expected, within)


def test_the_proxy_of_the_whole_batch_without_the_first_pair_is_the_margin_discrepancy() -> None:
    source, source_labels, _ = draw(9, 4, 3.0, 0)
    target, target_labels, _ = draw(7, 4, 3.0, 1)
    tensors = [torch.tensor(a) for a in (source, source_labels, target, target_labels)]
    plain = margin_discrepancy(*tensors, alpha=4.0)
    whole = proxy_margin_discrepancy(*tensors[:2], torch.ones(9), *tensors[2:], alpha=4.0, first_pair=False)
    assert {name: float(term) for name, term in plain.items()} == pytest.approx(
        {name: float(term) for name, term in whole.items()}
    )


def values_of(terms: dict[str, Tensor]) -> tuple[Tensor, ...]:
    return tuple(terms.values())


LABELS, OTHER_LABELS = torch.tensor([0, 2, 1, 1, 0]), torch.tensor([1, 1, 2, 0])
MASK = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0], dtype=torch.float64)


@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda a, b: weighted_risk(a, LABELS), id="weighted_risk"),
        pytest.param(lambda a, b: weighted_risk(a, LABELS, MASK), id="weighted_risk, masked"),
        pytest.param(lambda a, b: log_one_minus_softmax(a, LABELS), id="log_one_minus_softmax"),
        pytest.param(lambda a, b: entropy(a), id="entropy"),
        pytest.param(lambda a, b: masked_mean(a[:, 0], MASK), id="masked_mean"),
        pytest.param(
            lambda a, b: values_of(margin_discrepancy(a, LABELS, b, OTHER_LABELS, alpha=3.0)), id="margin_discrepancy"
        ),
        pytest.param(
            lambda a, b: values_of(proxy_margin_discrepancy(a, LABELS, MASK, b, OTHER_LABELS, alpha=3.0)),
            id="proxy_margin_discrepancy",
        ),
        pytest.param(
            lambda a, b: values_of(
                proxy_margin_discrepancy(a, LABELS, MASK, b, OTHER_LABELS, alpha=3.0, first_pair=False)
            ),
            id="proxy_margin_discrepancy, second pair",
        ),
    ],
)
def test_gradients_agree_with_finite_differences(function: Callable[..., object], scale: float) -> None:
    source, target = draw(5, 3, scale, 5)[0], draw(4, 3, scale, 6)[0]
    inputs = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (source, target)]
    assert gradcheck(function, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("margin", [20.0, 50.0, 100.0, 500.0])
def test_log_one_minus_softmax_is_right_where_the_softmax_rounds_to_one(margin: float, dtype: torch.dtype) -> None:
    rows = [[0.5, -1.0, 0.25], [-1.0, 0.75, 0.0], [0.0, 0.0, 0.0]]
    logits = torch.tensor(rows, dtype=dtype)
    labels = torch.tensor([0, 1, 2])
    logits[torch.arange(3), labels] += margin
    assert bool((torch.softmax(logits, 1).amax(1) == 1).all()) or margin == 20
    assert_value_and_gradient(logits, labels, within=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("offset", [0.0, 100.0, -100.0])
def test_log_one_minus_softmax_does_not_mind_a_common_offset(offset: float, dtype: torch.dtype) -> None:
    # All of these are exact in bfloat16, so the true value does not depend on how the input was rounded.
    rows = [[0.5, -1.0, 0.0], [-2.0, 1.5, 0.0], [0.0, 0.0, -3.0]]
    logits = torch.tensor(rows, dtype=dtype) + offset
    assert torch.equal(logits.double() - offset, torch.tensor(rows, dtype=torch.float64))
    rounding = 4 * torch.finfo(dtype).eps
    if dtype == torch.float32:
        rounding *= 1 + abs(offset)
    assert_value_and_gradient(logits, torch.tensor([0, 1, 2]), within=rounding)


def test_log_one_minus_softmax_at_the_far_ends() -> None:
    logits = torch.tensor([[3e38, -3e38], [-3e38, 3e38], [0.0, -float("inf")]], requires_grad=True)
    labels = torch.tensor([1, 1, 1])
    values = log_one_minus_softmax(logits, labels)
    assert values[0] == 0
    assert values[1] < -1e38
    assert values[2] == 0
    (gradient,) = torch.autograd.grad(values[[0, 2]].sum(), logits)
    assert bool(gradient.isfinite().all())


@quick
@given(
    losses=st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 7.0]) | st.floats(0, 50, width=32), min_size=1),
    parts=st.integers(1, 64),
    data=st.data(),
)
def test_proxy_mask_holds_the_smallest_and_ties_go_to_the_first(losses, parts, data) -> None:
    taken = data.draw(st.integers(0, parts))
    mask = proxy_mask(torch.tensor(losses), torch.tensor(taken / parts))
    size = len(losses)
    count = max(1, math.ceil(Fraction(taken, parts) * size))
    chosen = sorted(range(size), key=lambda i: (losses[i], i))[:count]
    assert mask.shape == (size,)
    assert mask.dtype == torch.float32
    assert mask.nonzero()[:, 0].tolist() == sorted(chosen)
    assert set(mask.tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 31, 32, 49, 64, 100, 256, 333, 512])
def test_proxy_mask_counts_exactly_at_every_share_of_the_batch(size: int) -> None:
    losses = torch.arange(size, dtype=torch.float32)
    counts = [int(proxy_mask(losses, torch.tensor(n / size)).sum()) for n in range(size + 1)]
    assert counts == [1, *range(1, size + 1)]
    between = [int(proxy_mask(losses, torch.tensor((n + 0.5) / size)).sum()) for n in range(size)]
    assert between == list(range(1, size + 1))


def test_proxy_mask_is_a_constant_of_static_shape() -> None:
    losses = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    for share in (0.0, 0.2, 0.5, 1.0):
        mask = proxy_mask(losses, torch.tensor(share, dtype=torch.float64))
        assert mask.shape == losses.shape
        assert mask.dtype == losses.dtype
        assert not mask.requires_grad


@quick
@given(size=sizes, n_classes=class_counts, seed=seeds, alpha=alphas, share=st.floats(0, 1))
def test_both_pairs_together_are_never_negative(size, n_classes, seed, alpha, share) -> None:
    source, labels, rng = draw(size, n_classes, 200.0, seed)
    target, target_labels, _ = draw(size, n_classes, 200.0, seed + 1)
    proxy = proxy_mask(torch.tensor(rng.normal(size=size)), torch.tensor(share))
    tensors = [torch.tensor(a) for a in (source, labels)], [torch.tensor(a) for a in (target, target_labels)]
    terms = proxy_margin_discrepancy(*tensors[0], proxy, *tensors[1], alpha=alpha)
    assert float(sum(terms.values())) >= -1e-9


def test_an_adversary_that_searches_finds_no_way_below_zero_with_both_pairs() -> None:
    for seed in range(3):
        values = descend(lambda terms: sum(terms.values()), seed)
        assert min(values) >= 0
        assert values[-1] < values[0]


def test_the_first_pair_alone_has_no_floor() -> None:
    values = descend(lambda terms: terms["first_pair"], 0)
    assert values[-1] < -1000
    assert values[-1] < values[len(values) // 2] < values[0]


@quick
@given(size=sizes, seed=seeds, alpha=alphas)
def test_the_first_pair_has_a_floor_while_the_proxy_is_large_enough(size, seed, alpha) -> None:
    source, labels, rng = draw(size, 5, 200.0, seed)
    proxy = proxy_mask(torch.tensor(rng.normal(size=size)), torch.tensor(1 / alpha + 1e-3))
    tensors = torch.tensor(source), torch.tensor(labels)
    terms = proxy_margin_discrepancy(*tensors, proxy, *tensors, alpha=alpha)
    assert float(terms["first_pair"]) >= -1e-9


def draw(size: int, n_classes: int, scale: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Logits up to ±scale, labels, and the generator they came from. Half of the rows are surest of their label."""
    rng = np.random.default_rng(seed)
    logits = rng.uniform(-scale, scale, (size, n_classes)).astype(np.float32).astype(np.float64)
    labels = np.where(rng.random(size) < 0.5, logits.argmax(1), rng.integers(0, n_classes, size))
    return logits, labels, rng


def np_log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def np_cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return -np_log_softmax(logits)[np.arange(len(labels)), labels]


def np_entropy(logits: np.ndarray) -> np.ndarray:
    logs = np_log_softmax(logits)
    return -(np.exp(logs) * logs).sum(axis=1)


def np_log_one_minus_softmax(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The log of the sum of the other classes' probabilities; e^−400 is still a number in float64."""
    probabilities = np.exp(np_log_softmax(logits))
    probabilities[np.arange(len(labels)), labels] = 0
    return np.log(probabilities.sum(axis=1))


def assert_terms(terms: dict[str, Tensor], expected: dict[str, float], within: float) -> None:
    assert all(term.shape == () for term in terms.values())
    assert {name: float(t) for name, t in terms.items()} == pytest.approx(expected, rel=within, abs=within)


def assert_value_and_gradient(logits: Tensor, labels: Tensor, within: float) -> None:
    """Against fifty digits: log(1 − σ_y), and its gradient σ_j/(1 − σ_y) − σ_j, or −σ_y at the label."""
    logits = logits.clone().requires_grad_()
    values = log_one_minus_softmax(logits, labels)
    values.sum().backward()
    assert logits.grad is not None
    values = values.detach()
    assert bool(values.isfinite().all())
    with mpmath.workdps(300):
        for row, label in enumerate(labels.tolist()):
            powers = [mpmath.exp(mpmath.mpf(z)) for z in logits[row].detach().double().tolist()]
            total = mpmath.fsum(powers)
            sigma = [p / total for p in powers]
            others = mpmath.fsum(s for j, s in enumerate(sigma) if j != label)
            gradient = [-s if j == label else s / others - s for j, s in enumerate(sigma)]
            assert float(values[row]) == pytest.approx(float(mpmath.log(others)), rel=within, abs=within)
            assert logits.grad[row].tolist() == pytest.approx([float(g) for g in gradient], rel=within, abs=within)


def descend(objective: Callable[[dict[str, Tensor]], Tensor], seed: int) -> list[float]:
    """What gradient descent of f' makes of an objective, with a proxy of 2 in 16 and α = 3."""
    generator = torch.Generator().manual_seed(seed)
    source, target = (torch.randn(16, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    labels = torch.randint(0, 4, (16,), generator=generator)
    proxy = proxy_mask(torch.arange(16.0), torch.tensor(2 / 16)).double()
    logits = [source.requires_grad_(), target.requires_grad_()]
    optimiser = torch.optim.SGD(logits, lr=30.0)
    values = []
    for _ in range(200):
        terms = proxy_margin_discrepancy(source, labels, proxy, target, labels, alpha=3.0)
        value = objective(terms)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        values.append(value.item())
    return values
