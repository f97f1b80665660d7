"""Offline curriculum learning (section 3.1): the loss ledger, class-wise thresholds, and the trust weights.

    ledger = LossLedger(m)                       # O(m) memory, however many epochs
    for epoch in range(T): ledger.add(losses)    # every example's loss, in its place
    result = exam(ledger.mean, labels, keep=kept_share(noise_rates, rule="paper"))
    result.trust                                 # w of eq. 8: 1 keep, 0 distrust

Nothing here knows about networks; all of it can be used in somebody else's training loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Exam", "KeepRule", "LossLedger", "Mode", "balanced", "exam", "kept_share"]

KeepRule = Literal["paper", "authors", "plain"]
Mode = Literal["classwise", "offline"]


class LossLedger:
    """The running mean of each example's loss over epochs, eq. 9; the whole curves only when asked for."""

    def __init__(self, size: int, *, curves: bool = False, device: torch.device | str = "cpu") -> None:
        self.mean = torch.zeros(size, dtype=torch.float64, device=device)
        self.epochs = 0
        self.curves: list[Tensor] | None = [] if curves else None

    def add(self, losses: Tensor) -> None:
        """Enter one epoch's losses, one for every example, in the order of the examples."""
        if losses.shape != self.mean.shape:
            raise ValueError(f"the ledger holds {len(self.mean)} examples, but {tuple(losses.shape)} losses came")
        self.epochs += 1
        self.mean += (losses.detach().to(self.mean) - self.mean) / self.epochs
        if self.curves is not None:
            self.curves.append(losses.detach().cpu().float())

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on later, as tensors."""
        state = {"mean": self.mean.clone(), "epochs": torch.tensor(self.epochs)}
        if self.curves:
            state["curves"] = torch.stack(self.curves)
        return state

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up where `state` left off."""
        self.mean.copy_(state["mean"])
        self.epochs = int(state["epochs"])
        if self.curves is not None:
            self.curves = list(state["curves"]) if "curves" in state else []


def kept_share(noise_rate: Tensor, rule: KeepRule = "paper") -> Tensor:
    """p_k, the share of class k to keep, from its noise rate r_k.

    ``paper``: max{1 − 1.2r, .8(1 − r)}; ``authors``: min{1 − 1.2r, .9(1 − r)}, what their program does;
    ``plain``: 1 − r. The two published rules agree from r = 1/3 to 1/2, where both are 1 − 1.2r.
    """
    rate = noise_rate.clamp(0, 1)
    if rule == "paper":
        share = torch.maximum(1 - 1.2 * rate, 0.8 * (1 - rate))
    elif rule == "authors":
        share = torch.minimum(1 - 1.2 * rate, 0.9 * (1 - rate))
    else:
        share = 1 - rate
    return share.clamp(0, 1)


@dataclass(frozen=True)
class Exam:
    """The outcome of the curriculum. `threshold` is γ of the example's own class."""

    trust: Tensor
    threshold: Tensor
    rank: Tensor


def exam(
    mean_loss: Tensor, labels: Tensor, keep: Tensor, *, mode: Mode = "classwise", doubted: Tensor | None = None
) -> Exam:
    """Rank the mean losses and trust the smallest (eq. 8).

    In the paper's mode, ``classwise``, the examples of class k are ranked among themselves and the first
    ``⌊m_k·p_k⌋`` are trusted (but at least one, so that no class vanishes); γ_k is the last one's loss, and
    whoever ties with it is trusted too. ``offline`` has one threshold for all classes, at the examples' average p.
    Examples that are ``doubted`` for other reasons (a mask) rank behind all others of their class, whatever their loss;
    γ_k is that of the others, as long as there are any. One sort, O(m log m).
    """
    size = len(labels)
    if mode == "offline":
        keep = keep[labels].mean().expand(1)
        labels = torch.zeros_like(labels)
    n_classes = len(keep)
    doubt = torch.zeros_like(labels) if doubted is None else doubted.to(labels)
    counts = torch.bincount(labels, minlength=n_classes)
    sure = torch.bincount(labels[doubt == 0], minlength=n_classes)
    # Sorting by loss, then stably by class, lays the classes side by side, each in ascending order of loss.
    by_loss = torch.argsort(mean_loss, stable=True)
    order = by_loss[torch.argsort((2 * labels + doubt)[by_loss], stable=True)]
    starts = torch.cumsum(counts, 0) - counts
    rank = torch.empty(size, dtype=torch.long, device=labels.device)
    rank[order] = torch.arange(size, device=labels.device) - starts[labels[order]]
    # A product such as 50·.52 may land just below its whole number, and must not lose an example for that.
    kept = torch.floor(counts * (keep.double().to(counts.device) + 1e-6)).long().clamp(min=1).minimum(counts)

    def loss_at(number: Tensor) -> Tensor:
        last = order[(starts + number - 1).clamp(min=0, max=size - 1)]
        return torch.where(number > 0, mean_loss[last], torch.nan)

    gamma, of_doubted = loss_at(kept.minimum(torch.where(sure > 0, sure, kept))), loss_at(kept)
    threshold = gamma[labels]
    passed = torch.where(doubt > 0, (kept > sure)[labels] & (mean_loss <= of_doubted[labels]), mean_loss <= threshold)
    return Exam(trust=passed, threshold=threshold, rank=rank)


def balanced(rows: Tensor, labels: Tensor, seed: int = 0) -> Tensor:
    """The trusted rows, repeated so that every class counts as much as it did before the filtering.

    Filtering keeps different shares of different classes. What is left would have other class proportions than the
    source had, and aligning it with the target would pull the target's classes after them. With `labels` those of all
    examples, class k comes back with m_k rows: all of its trusted ones equally often, but for a random remainder.
    """
    generator = torch.Generator().manual_seed(seed)
    pieces: list[Tensor] = []
    before = torch.bincount(labels)
    left = torch.bincount(labels[rows], minlength=len(before))
    by_class = torch.split(rows[torch.argsort(labels[rows], stable=True)], left.tolist())
    for own, wanted in zip(by_class, before.tolist(), strict=True):
        if len(own) == 0:
            continue
        times, rest = divmod(wanted, len(own))
        extra = own[torch.randperm(len(own), generator=generator)[:rest]]
        pieces += [own.repeat(times), extra]
    return torch.cat(pieces)
