"""The hypothesis set F: linear heads on features of unit length, with weights of bounded length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from robustda.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MARGIN", "NORM", "LinearHead", "check_head", "disagreeing_head", "fit_head", "margin_losses"]

Codes = npt.NDArray[np.int64]
Single = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

NORM, MARGIN = 10.0, 1.0
"""Λ and ρ, of which only the ratio matters."""
_STEPS = 60


@dataclass(frozen=True, eq=False)
class LinearHead:
    """f(x) = W x with ‖W_k‖ ≤ norm."""

    weights: Single
    """(K, d)"""
    norm: float = NORM

    def scores(self, x: Single) -> Single:
        """f(x), one column a class."""
        found: Single = x @ self.weights.T
        return found

    def predict(self, x: Single) -> Codes:
        """h_f(x), the class with the highest score."""
        found: Codes = self.scores(x).argmax(axis=1)
        return found


def fit_head(x: Single, labels: Codes, n_classes: int, *, norm: float = NORM) -> LinearHead:
    """The head with the least cross-entropy on labelled examples."""
    import torch
    from torch.nn import functional as F

    rows, wanted = _tensor(x), torch.from_numpy(labels)
    start = np.zeros((n_classes, x.shape[1]), dtype=np.float32)
    return _trained(LinearHead(start, norm), lambda weights: F.cross_entropy(rows @ weights.T, wanted), _rate(rows))


def disagreeing_head(head: LinearHead, source: Single, target: Single, margin: float = MARGIN) -> LinearHead:
    """f': as `head` on the source and as unlike it as can be on the target.

    First by the adversarial network's own loss, with α = 1, which weighs both domains as definition 3.3 does; then by
    the difference of margin losses itself, which is flat in many places: from there, and from f tilted so that it finds
    on the target what it hardly finds there. The best of all these, and of f, is kept.
    """
    import torch

    from robustda.losses import margin_discrepancy

    at_home, away = _tensor(source), _tensor(target)
    here, there = (torch.from_numpy(head.predict(x)) for x in (source, target))

    def surrogate(weights: Tensor) -> Tensor:
        terms = margin_discrepancy(at_home @ weights.T, here, away @ weights.T, there, alpha=1.0)
        return terms["source_disparity"] + terms["target_disparity"]

    def itself(weights: Tensor) -> Tensor:
        return _ramp(at_home @ weights.T, here, margin) - _ramp(away @ weights.T, there, margin)

    rate = _rate(at_home, away)
    led = _trained(head, surrogate, rate)
    heads = [head, led, *(_trained(start, itself, rate) for start in (led, _tilted(head, source, target)))]
    with torch.no_grad():
        return min(heads, key=lambda found: float(itself(torch.from_numpy(found.weights))))


def margin_losses(scores: Single, labels: Codes, margin: float = MARGIN) -> Values:
    """Φ_ρ of the margin, half the label's lead over the best other class: 0 from ρ on, 1 below 0, straight between.

    >>> scores = np.array([[4, 0], [1, 0], [0, 1]], dtype=np.float32)
    >>> margin_losses(scores, np.zeros(3, dtype=np.int64)).tolist()
    [0.0, 0.5, 1.0]
    """
    rows = np.arange(len(labels))
    own = scores[rows, labels].astype(np.float64)
    others = scores.astype(np.float64)
    others[rows, labels] = -np.inf
    losses: Values = np.clip(1 - (own - others.max(axis=1)) / (2 * margin), 0, 1)
    return losses


def check_head(norm: float, margin: float) -> None:
    """Answer limits that mean nothing by a line."""
    if not (norm > 0 and margin > 0 and np.isfinite([norm, margin]).all()):
        raise ConfigError(f"the norm is {norm} and the margin {margin}: give numbers above 0, such as 10 and 1")


def _tilted(head: LinearHead, source: Single, target: Single) -> LinearHead:
    """The head with the class that it finds least on the target turned towards where the target lies."""
    weights = head.weights.copy()
    rarest = np.bincount(head.predict(target), minlength=len(weights)).argmin()
    aside = target.mean(axis=0) - source.mean(axis=0)
    weights[rarest] += head.norm * aside / max(float(np.linalg.norm(aside)), 1e-12)
    weights[rarest] *= min(1.0, head.norm / max(float(np.linalg.norm(weights[rarest])), 1e-12))
    return LinearHead(weights, head.norm)


def _ramp(scores: Tensor, labels: Tensor, margin: float) -> Tensor:
    """The mean of `margin_losses`, with a gradient."""
    own = scores.gather(1, labels[:, None])[:, 0]
    others = scores.scatter(1, labels[:, None], float("-inf")).amax(dim=1)
    return (1 - (own - others) / (2 * margin)).clamp(0, 1).mean()


def _trained(start: LinearHead, loss: Callable[[Tensor], Tensor], rate: float) -> LinearHead:
    """Gradient descent with Nesterov's momentum; after each step, weights that are too long are brought to the norm.

    Plain gradients follow the directions in which features vary. Adam makes much of the others, too: its heads fit the
    source as well, and are 30 points less accurate on another domain.
    """
    import torch

    before = ahead = torch.from_numpy(start.weights)
    speed = 1.0
    for _ in range(_STEPS):
        with torch.enable_grad():
            ahead = ahead.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(loss(ahead), ahead)
        with torch.no_grad():
            now = ahead - rate * slope
            now *= (start.norm / now.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)
            faster = (1 + math.sqrt(1 + 4 * speed**2)) / 2
            ahead, before, speed = now + (speed - 1) / faster * (now - before), now, faster
    return LinearHead(before.numpy(), start.norm)


def _rate(*domains: Tensor) -> float:
    """One over the steepest curvature that the mean cross-entropies on these examples can have."""
    import torch

    steepest = sum(float(torch.linalg.matrix_norm(x, ord=2)) ** 2 / len(x) for x in domains)
    return 2 / max(steepest, 1e-9)


def _tensor(x: Single) -> Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
