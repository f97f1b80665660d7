"""TCL: Shu et al., Transferable Curriculum for Weakly-Supervised Domain Adaptation, AAAI 2019.

DANN with an online curriculum. After a warm-up every step chooses anew which source examples of the batch count: those
whose class loss is small *and* that the discriminator takes for target examples. Both the source risk and the source's
part of the domain game are weighted by that choice, and the entropy of the target's predictions is kept low.

Departures: the weighted risk is divided by the number of chosen examples, as everywhere in this library, and not by the
batch; network and schedule are those of all methods here. While the warm-up lasts all examples count, and after it the
easiest half of a batch does in any case (`least_share`): where no loss is below the threshold when the warm-up ends,
nothing would be learned from the source any more, and the entropy alone would draw the target into one class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from robustda.alignment import domain_loss, transferable
from robustda.losses import entropy, masked_mean, proxy_mask
from robustda.methods.base import Batch, Phase, Task
from robustda.methods.checks import check_at_least, check_share
from robustda.methods.dann import DomainAdversarialMethod, Encounter
from robustda.methods.registry import register

__all__ = ["TCL"]


@register("tcl")
@dataclass(kw_only=True)
class TCL(DomainAdversarialMethod):
    """Domain-adversarial training on the source examples that an online curriculum lets through.

    Parameters
    ----------
    class_threshold: probability of the given label that an example should exceed to be let through (θ_y).
    domain_threshold: probability of being from the source that it should stay below (θ_d).
    domain_weight: weight of the domain's part in that decision (λ_d).
    warm_up: share of the steps in which all examples are let through.
    least_share: share of every batch, that of the smallest losses, which is let through whatever the thresholds say.
    entropy_weight: weight of the entropy of the target's predictions.
    """

    summary: ClassVar[str] = "DANN with an online curriculum on class loss and domain confusion, and target entropy"
    paper: ClassVar[str] = "Shu et al., Transferable Curriculum for Weakly-Supervised Domain Adaptation, AAAI 2019"

    class_threshold: float = 0.3
    domain_threshold: float = 0.5
    domain_weight: float = 0.1
    warm_up: float = 0.15
    least_share: float = 0.5
    entropy_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, class_threshold=1e-6, domain_weight=0, entropy_weight=0)
        check_share(self, "class_threshold", "warm_up", "least_share")
        check_share(self, "domain_threshold", below_one=True)

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.adapt]

    def adapt(self, task: Task) -> Phase:
        """The only phase: weighted source risk, weighted domain game, target entropy."""
        network = self.network(task.source.example_shape, task.n_classes)
        reversal = self.reversal()

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            met = Encounter.of(network, batch, reversal(progress))
            losses = F.cross_entropy(met.source, batch.labels, reduction="none")
            chosen = transferable(
                losses,
                met.domain_source,
                class_threshold=self.class_threshold,
                domain_threshold=self.domain_threshold,
                domain_weight=self.domain_weight,
            )
            if self.least_share:
                chosen = torch.maximum(chosen, proxy_mask(losses, torch.full_like(progress, self.least_share)))
            weights = torch.where(progress < self.warm_up, torch.ones_like(chosen), chosen)
            terms = {
                "risk": masked_mean(losses, weights),
                "domain_loss": domain_loss(met.domain_source, met.domain_target, weights),
                "entropy_loss": self.entropy_weight * entropy(met.target).mean(),
            }
            return met.report(terms) | {"kept_share": weights.mean()}

        return Phase("adapt", network, loss, self.steps, self.rate(self.steps), schedules={"reversal": reversal})
