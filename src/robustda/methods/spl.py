"""SPL: Kumar, Packer and Koller, Self-Paced Learning for Latent Variable Models, NIPS 2010.

Easy examples first: those with a loss below λ are trained on, v_i = 1[ℓ_i < λ], and λ grows until all are in.

Departures: the loss that decides is each example's running loss over its last visits, not that of the batch: a batch's
own quantile would drop as many of a clean batch as of a bad one, and one noisy look (dropout, augmentation) would
decide. λ is the quantile of all examples' running losses as the epoch began, which rises from the median to the whole,
so it needs no scale. In the first epoch nothing is known of most examples, and all count. No adaptation: the
target is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from robustda.losses import masked_mean
from robustda.methods.base import Batch, Method, Phase, Task
from robustda.methods.checks import check_share
from robustda.methods.registry import register

__all__ = ["SPL", "RunningLosses"]


@register("spl")
@dataclass(kw_only=True)
class SPL(Method):
    """Cross-entropy on the source examples with the smallest losses, more and more of them.

    Parameters
    ----------
    first_share: share of the examples that λ lets in at first: .5 puts λ at the median loss.
    all_in: share of the run after which all examples are in; that of λ's quantile rises evenly until then.
    memory: weight of the past in an example's running loss.
    """

    summary: ClassVar[str] = "self-paced: trains on small losses first and lets in the others by and by, no adaptation"
    paper: ClassVar[str] = "Kumar et al., Self-Paced Learning for Latent Variable Models, NIPS 2010"

    first_share: float = 0.5
    all_in: float = 1.0
    memory: float = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self, "first_share", "all_in")
        check_share(self, "memory", below_one=True)

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.train]

    def train(self, task: Task) -> Phase:
        """The only phase."""
        network = self.network(task.source.example_shape, task.n_classes)
        running = RunningLosses(len(task.source), memory=self.memory, device=task.device)

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            losses = F.cross_entropy(network(batch.source), batch.labels, reduction="none")
            known = running.update(batch.rows, losses.detach())
            easy = (known < running.threshold(self.share(progress))).to(losses.dtype)
            return {"loss": masked_mean(losses, easy), "kept_share": easy.mean()}

        return Phase(
            "train",
            network,
            loss,
            self.steps,
            self.rate(self.steps),
            uses_target=False,
            epoch_steps=max(1, round(len(task.source) / self.batch_size)),
            after_epoch=running.rank,
            stateful={"running": running},
        )

    def share(self, progress: Tensor) -> Tensor:
        """The share of the examples that λ lets in, as a function of progress."""
        risen = (progress / max(self.all_in, 1e-9)).clamp(max=1)
        return self.first_share + (1 - self.first_share) * risen


class RunningLosses:
    """Every example's running loss, kept on the device, and their order as of the last epoch's end."""

    def __init__(self, size: int, *, memory: float, device: torch.device | str = "cpu") -> None:
        self.memory = memory
        self.losses = torch.full((size,), torch.inf, device=device)
        # Ascending, with an infinity behind the last: the place of a share of 1, below which everything is.
        self.ranked = torch.full((size + 1,), torch.inf, device=device)

    def update(self, rows: Tensor, losses: Tensor) -> Tensor:
        """Enter the losses of a batch; returns the running losses of its examples."""
        # A batch may hold an example twice, at the seam of two epochs; both then carry their mean, so that it does not
        # matter which of them is written last.
        same = (rows[:, None] == rows[None, :]).to(losses.dtype)
        losses = (same @ losses) / same.sum(dim=1)
        before = self.losses[rows]
        known = torch.where(before.isinf(), losses, self.memory * before + (1 - self.memory) * losses)
        self.losses.index_copy_(0, rows, known)
        return known

    def rank(self) -> None:
        """Take stock at the end of an epoch."""
        self.ranked[:-1].copy_(self.losses.sort().values)

    def threshold(self, share: Tensor) -> Tensor:
        """λ: so many of all examples have a running loss below it."""
        # A product such as .7·10 may land just below its whole number, and must not lose an example for that.
        place = torch.floor(share * len(self.losses) + 1e-4).long().clamp(max=len(self.losses))
        return self.ranked.gather(0, place[None])[0]  # indexing with a scalar would wait for its value

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on later, as tensors."""
        return {"losses": self.losses, "ranked": self.ranked}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up where `state` left off."""
        self.losses.copy_(state["losses"])
        self.ranked.copy_(state["ranked"])
