"""How far a measured discrepancy may be from the true one: the sample-size terms of theorem 3.1."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from robustda.errors import ConfigError
from robustda.theory.heads import MARGIN, NORM, check_head

__all__ = ["Bound", "rademacher"]

Codes = npt.NDArray[np.int64]
Single = npt.NDArray[np.float32]
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Bound:
    """The right-hand side of eq. 15, term by term, for samples of the noisy source, of the proxy and of the target.

    As a number it is far above 1, as such bounds are: it is there to show what more data would do.

    >>> bound = Bound(sizes=(1000, 800, 500), complexities=(0.1, 0.1, 0.1), classes=2)
    >>> round(bound.grown(4).total / bound.total, 3)
    0.5
    """

    sizes: tuple[int, int, int]
    """m, u, n"""
    complexities: Triple
    """empirical Rademacher complexity on each sample"""
    classes: int
    margin: float = MARGIN
    delta: float = 0.05
    """the bound holds with probability 1 − 2δ"""

    def __post_init__(self) -> None:
        if min(self.sizes) < 1 or not 0 < self.delta < 0.5:
            raise ConfigError(f"sizes are {self.sizes} and delta {self.delta}: give 1 or more, and a share below .5")

    @property
    def complexity_terms(self) -> Triple:
        """2K/ρ·R for source and target, and 4K/ρ·R for the proxy, which has a part in both halves of PMD."""
        m, u, n = (2 * self.classes / self.margin * value for value in self.complexities)
        return m, 2 * u, n

    @property
    def chance_terms(self) -> Triple:
        """√(log(2/δ)/2m), 2√(log(2/δ)/2u) and √(log(2/δ)/2n)."""
        m, u, n = (math.sqrt(math.log(2 / self.delta) / (2 * size)) for size in self.sizes)
        return m, 2 * u, n

    @property
    def total(self) -> float:
        """The whole right-hand side."""
        return sum(self.complexity_terms) + sum(self.chance_terms)

    def grown(self, source: float, target: float | None = None) -> Bound:
        """The same with so many times the examples; the proxy grows with the source, and with one number all do.

        A linear head's complexity falls with the root of the size, as the other terms do.
        """
        factors = (source, source, source if target is None else target)
        m, u, n = (max(1, round(size * factor)) for size, factor in zip(self.sizes, factors, strict=True))
        first, second, third = (
            value * math.sqrt(before / now)
            for value, before, now in zip(self.complexities, self.sizes, (m, u, n), strict=True)
        )
        return replace(self, sizes=(m, u, n), complexities=(first, second, third))

    @property
    def best_to_grow(self) -> Literal["source", "target"]:
        """Twice as many examples of which domain would lower the bound more."""
        return "source" if self.grown(2, 1).total < self.grown(1, 2).total else "target"


def rademacher(
    x: Single,
    classes: Codes,
    n_classes: int,
    *,
    norm: float = NORM,
    hidden: int = 0,
    draws: int = 20,
    steps: int = 60,
    seed: int = 0,
) -> float:
    """Empirical Rademacher complexity of {x → f(x, h(x)) | f ∈ F} for h = `classes`, by Monte Carlo over random signs.

    How well can a head's scores follow coins that were tossed for the examples? For linear heads the best of them is
    known: norm/m · Σ_k ‖Σ_{i: h(x_i) = k} σ_i x_i‖. With `hidden` units, heads of one hidden layer (rectified, weights
    of unit length, output weights of norm/√hidden, so that scores have the same range) are trained against each draw by
    `steps` steps of Adam: an estimate from below, as the best of them is not known. h is the classifier at hand; over
    all h at once, as theorem 3.1 has it, the complexity is larger still.
    """
    check_head(norm, 1.0)
    if draws < 1 or not len(x):
        raise ConfigError(f"{draws} draws for {len(x)} examples: give 1 or more of both")
    signs = np.random.default_rng(seed).choice(np.array([-1, 1], dtype=np.float32), (draws, len(x)))
    if hidden:
        return _by_training(x, classes, n_classes, signs, norm, hidden, steps, seed)
    order = np.argsort(classes, kind="stable")
    starts = np.unique(classes[order], return_index=True)[1]
    lengths = [
        float(np.linalg.norm(np.add.reduceat(x[order] * sign[order, None], starts, axis=0), axis=1).sum())
        for sign in signs
    ]
    return norm * float(np.mean(lengths)) / len(x)


def _by_training(
    x: Single, classes: Codes, n_classes: int, signs: Single, norm: float, hidden: int, steps: int, seed: int
) -> float:
    import torch
    from torch.nn import functional as F

    generator = torch.Generator().manual_seed(seed)
    rows, coins, own = torch.from_numpy(x), torch.from_numpy(signs), torch.from_numpy(classes)
    best = []
    for coin in coins:
        inner = F.normalize(torch.randn(hidden, x.shape[1], generator=generator)).requires_grad_(True)
        outer = (0.1 * torch.randn(n_classes, hidden, generator=generator)).requires_grad_(True)
        optimizer = torch.optim.Adam([inner, outer], lr=0.1)
        with torch.enable_grad():
            for _ in range(steps):
                units = torch.relu(rows @ F.normalize(inner).T)
                # Only what points along the coins counts, so output weights are best at full length.
                follows = norm / math.sqrt(hidden) * (units * F.normalize(outer)[own]).sum(dim=1) @ coin / len(x)
                optimizer.zero_grad()
                (-follows).backward()
                optimizer.step()
        best.append(float(follows.detach()))
    return float(np.mean(best))
