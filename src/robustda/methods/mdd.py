"""MDD: Zhang et al., Bridging Theory and Algorithm for Domain Adaptation, ICML 2019.

The margin disparity discrepancy of the representation is played as a game: an adversary f' tries to disagree with f on
the target while it agrees on the source, and the representation is trained to make that impossible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from robustda.losses import entropy, margin_discrepancy, weighted_risk
from robustda.methods.base import Batch, Method, Phase, Schedule, Task
from robustda.methods.checks import check_at_least
from robustda.methods.registry import register
from robustda.nets import Adversarial

__all__ = ["MDD", "AdversarialMethod", "Play"]


@dataclass(kw_only=True)
class AdversarialMethod(Method):
    """What MDD and RDA, which play the same game, have in common.

    Parameters
    ----------
    alpha: weight of the source's disparity, α = exp ρ; at least 1.
    beta: the reversed gradient that reaches the representation is scaled by β.
    beta_rise: β rises to its full value as 2/(1 + e^(−i/beta_rise)) − 1 with the iteration i; 0 means from the start.
    """

    alpha: float = 4.0
    beta: float = 0.1
    beta_rise: float = 1000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, alpha=1, beta=0, beta_rise=0)

    def network(self, example_shape: tuple[int, ...], n_classes: int, *, pretrained: bool = True) -> Adversarial:
        backbone = self.make_backbone(example_shape, pretrained)
        return Adversarial(backbone, n_classes, self.width, dropout=self.dropout)

    def reversal(self) -> Schedule:
        """β as a function of progress."""
        if self.beta_rise == 0:
            return lambda progress: self.beta
        return lambda progress: self.beta * (2 * torch.sigmoid(progress * self.steps / self.beta_rise) - 1)


@register("mdd")
@dataclass(kw_only=True)
class MDD(AdversarialMethod):
    """Margin disparity discrepancy on all the noisy source data."""

    summary: ClassVar[str] = "adversarial margin disparity discrepancy, no defence against noise"
    paper: ClassVar[str] = "Zhang et al., Bridging Theory and Algorithm for Domain Adaptation, ICML 2019"

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.adapt]

    def adapt(self, task: Task) -> Phase:
        """The only phase: source risk and discrepancy together."""
        network = self.network(task.source.example_shape, task.n_classes)
        reversal = self.reversal()

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            play = Play.of(network, batch, reversal(progress))
            terms = {"risk": weighted_risk(play.source, batch.labels)}
            terms |= margin_discrepancy(
                play.adversary_source,
                play.labels_source,
                play.adversary_target,
                play.labels_target,
                alpha=self.alpha,
            )
            return play.report(terms)

        return Phase("adapt", network, loss, self.steps, self.rate(self.steps), schedules={"reversal": reversal})


@dataclass(frozen=True)
class Play:
    """One forward pass over [source; target] together: logits of f and f', and h_f, held constant."""

    features: Tensor
    source: Tensor
    target: Tensor
    adversary_source: Tensor
    adversary_target: Tensor
    labels_source: Tensor
    labels_target: Tensor

    @classmethod
    def of(cls, network: Adversarial, batch: Batch, reversal: Tensor | float) -> Play:
        count = len(batch.source)
        features = network.features(batch.both)
        logits = cast(Tensor, network.f(features))
        adversary = network.adversary_logits(features, reversal)
        labels = logits.detach().argmax(dim=1)
        return cls(
            features[:count], logits[:count], logits[count:], adversary[:count], adversary[count:],
            labels[:count], labels[count:],
        )  # fmt: skip

    def report(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """The sum of the terms as the loss, the terms themselves, and how the game stands."""
        agree_source = (self.adversary_source.argmax(dim=1) == self.labels_source).float().mean()
        agree_target = (self.adversary_target.argmax(dim=1) == self.labels_target).float().mean()
        return {
            "loss": torch.stack(list(terms.values())).sum(),
            **terms,
            # f' agreeing with f on the source and not on the target: 1 means the domains are told apart with ease.
            "discrepancy": agree_source - agree_target,
            "target_entropy": entropy(self.target.detach()).mean(),
        }
