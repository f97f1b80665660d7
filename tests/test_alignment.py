"""The rivals' losses against oracles: a double loop for MMD, cases worked out by hand for the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robustda.alignment import (
    Estimator,
    domain_accuracy,
    domain_loss,
    fused_mmd,
    multi_kernel_mmd,
    transferable,
)


def brute_force_mmd(source: np.ndarray, target: np.ndarray, estimator: Estimator) -> float:
    points = np.concatenate([source, target]).astype(np.float64)
    n, total = len(source), len(points)
    squared = [[float(((a - b) ** 2).sum()) for b in points] for a in points]
    mean = sum(squared[i][j] for i in range(total) for j in range(total) if i != j) / (total * (total - 1))

    def kernel(i: int, j: int) -> float:
        if mean == 0:
            return 5.0
        return sum(math.exp(-squared[i][j] / (2 * 2.0**k * mean)) for k in (-3, -2, -1, 0, 1))

    def average(rows: range, columns: range) -> float:
        same = rows == columns and estimator == "unbiased" and len(rows) > 1
        pairs = [(i, j) for i in rows for j in columns if not (same and i == j)]
        return sum(kernel(i, j) for i, j in pairs) / len(pairs)

    first, second = range(n), range(n, total)
    return average(first, first) + average(second, second) - 2 * average(first, second)


@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
@pytest.mark.parametrize(("n", "m", "scale", "shift"), [(6, 6, 1, 0), (5, 8, 10, 3), (1, 4, 1, 1), (1, 1, 1, 2)])
def test_mmd_is_the_double_loop(estimator: Estimator, n: int, m: int, scale: float, shift: float) -> None:
    rng = np.random.default_rng(n * m)
    source, target = scale * rng.normal(size=(n, 4)), scale * rng.normal(size=(m, 4)) + shift
    found = multi_kernel_mmd(torch.tensor(source), torch.tensor(target), estimator=estimator)
    assert float(found) == pytest.approx(brute_force_mmd(source, target, estimator), abs=1e-9)


def test_fused_mmd_is_that_of_the_outer_products() -> None:
    rng = np.random.default_rng(0)
    z, f = rng.normal(size=(11, 6)), rng.normal(size=(11, 3))
    products = np.stack([np.outer(a, b).ravel() for a, b in zip(z, f, strict=True)])
    layers = [torch.tensor(z), torch.tensor(f)]
    found = fused_mmd([layer[:5] for layer in layers], [layer[5:] for layer in layers])
    assert float(found) == pytest.approx(brute_force_mmd(products[:5], products[5:], "unbiased"), abs=1e-9)


@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 6),
    other=st.integers(1, 6),
    scale=st.sampled_from([0.0, 1e-20, 1e-8, 1.0, 1e4]),
    offset=st.sampled_from([0.0, 1.0, 1e4]),
)
def test_mmd_is_never_nan(estimator: Estimator, size: int, other: int, scale: float, offset: float) -> None:
    torch.manual_seed(0)
    source = (scale * torch.randn(size, 3) + offset).requires_grad_()
    target = scale * torch.randn(other, 3) + offset
    plain = multi_kernel_mmd(source, target, estimator=estimator)
    fused = fused_mmd([source, source], [target, target], estimator=estimator)
    for value in (plain, fused):
        (gradient,) = torch.autograd.grad(value, source)
        assert value.isfinite()
        assert gradient.isfinite().all()
    # Far from the origin float32 has no digits left for a product's distances, and the fused one is noise about zero.
    for value in (plain, fused) if offset < 1e4 else (plain,):
        assert value > -1e-4 or estimator == "unbiased"


def test_the_unbiased_mmd_is_right_on_average_and_so_also_negative() -> None:
    torch.manual_seed(0)
    same = torch.stack([multi_kernel_mmd(torch.randn(16, 3), torch.randn(16, 3)) for _ in range(300)])
    assert abs(float(same.mean())) < 3 * float(same.std()) / math.sqrt(len(same))
    assert 0.2 < float((same < 0).float().mean()) < 0.8
    biased = multi_kernel_mmd(torch.randn(16, 3), torch.randn(16, 3), estimator="biased")
    assert float(biased) > 0


def test_domain_loss_by_hand() -> None:
    source, target = torch.tensor([0.0, 2.0]), torch.tensor([0.0, -1.0, 1.0])
    of_source = [-math.log(1 / (1 + math.exp(-z))) for z in (0, 2)]
    of_target = [-math.log(1 - 1 / (1 + math.exp(-z))) for z in (0, -1, 1)]
    assert float(domain_loss(source, target)) == pytest.approx(sum(of_source) / 4 + sum(of_target) / 6)
    weighted = domain_loss(source, target, torch.tensor([0.0, 1.0]))
    assert float(weighted) == pytest.approx(of_source[1] / 2 + sum(of_target) / 6)
    assert float(domain_loss(torch.zeros(4), torch.zeros(4))) == pytest.approx(math.log(2))
    extreme = domain_loss(torch.tensor([-1e4]), torch.tensor([1e4]))
    assert extreme.isfinite()


def test_domain_accuracy_counts_the_domains_alike() -> None:
    assert float(domain_accuracy(torch.tensor([1.0, 1.0, 1.0, -1.0]), torch.tensor([-1.0]))) == pytest.approx(0.875)


def test_tcl_weights_by_hand() -> None:
    """θ_y .3, θ_d .5, λ_d .1: the bound is 1.2040 + .0693 = 1.2733."""
    losses = torch.tensor([0.0, 1.20, 1.21, 1.27, 3.0, 0.9])
    domain = torch.tensor([0.0, 0.0, -50.0, 0.0, -50.0, 6.0])
    scores = [0.0693, 1.2693, 1.21, 1.3393, 3.0, 0.9 + 0.1 * math.log1p(math.exp(6))]
    expected = [1.0 if score < 1.2733 else 0.0 for score in scores]
    assert expected == [1, 1, 1, 0, 0, 0]
    found = transferable(losses, domain, class_threshold=0.3, domain_threshold=0.5, domain_weight=0.1)
    assert found.tolist() == expected
