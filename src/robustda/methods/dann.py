"""DANN: Ganin and Lempitsky, Unsupervised Domain Adaptation by Backpropagation, ICML 2015.

A discriminator d learns to tell source from target features, and the gradient that it sends back is reversed, so that
the representation learns to make that impossible; the classifier learns from the source labels meanwhile.

Departures: bottleneck, classifier, learning rate and schedule are those of all methods here (the paper's network for
ResNet-50 has a bottleneck of 256 and learns at .01). β rises as 2/(1 + e^(−10p)) − 1 with the progress p of the run, as
published: unlike MDD's and RDA's, which rises in iterations, it comes to its full value in short runs too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from robustda.alignment import domain_accuracy, domain_loss
from robustda.layers import Wide, reverse_gradient
from robustda.losses import entropy, weighted_risk
from robustda.methods.base import Batch, Method, Phase, Schedule, Task
from robustda.methods.checks import check_at_least
from robustda.methods.registry import register
from robustda.nets import Backbone, Classifier

__all__ = ["DANN", "DomainAdversarial", "DomainAdversarialMethod", "Encounter"]


@dataclass(kw_only=True)
class DomainAdversarialMethod(Method):
    """What DANN and TCL, which play against a domain discriminator, have in common.

    Parameters
    ----------
    beta: the reversed gradient that reaches the representation is scaled by β.
    beta_speed: β rises to its full value as 2/(1 + e^(−beta_speed·p)) − 1 with the progress p, from 0 to 1, of the run
        (the paper's γ).
    discriminator_width: width of the discriminator's two hidden layers.
    """

    beta: float = 1.0
    beta_speed: float = 10.0
    discriminator_width: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, beta=0, beta_speed=0, discriminator_width=1)

    def network(self, example_shape: tuple[int, ...], n_classes: int, *, pretrained: bool = True) -> DomainAdversarial:
        backbone = self.make_backbone(example_shape, pretrained)
        return DomainAdversarial(backbone, n_classes, self.width, self.discriminator_width, dropout=self.dropout)

    def reversal(self) -> Schedule:
        """β as a function of progress."""
        return lambda progress: self.beta * (2 * torch.sigmoid(self.beta_speed * progress) - 1)


@register("dann")
@dataclass(kw_only=True)
class DANN(DomainAdversarialMethod):
    """Domain-adversarial training on all the noisy source data."""

    summary: ClassVar[str] = "adversarial domain discriminator behind a gradient reversal, no defence against noise"
    paper: ClassVar[str] = "Ganin and Lempitsky, Unsupervised Domain Adaptation by Backpropagation, ICML 2015"

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.adapt]

    def adapt(self, task: Task) -> Phase:
        """The only phase: source risk and domain game together."""
        network = self.network(task.source.example_shape, task.n_classes)
        reversal = self.reversal()

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            met = Encounter.of(network, batch, reversal(progress))
            terms = {
                "risk": weighted_risk(met.source, batch.labels),
                "domain_loss": domain_loss(met.domain_source, met.domain_target),
            }
            return met.report(terms)

        return Phase("adapt", network, loss, self.steps, self.rate(self.steps), schedules={"reversal": reversal})


class DomainAdversarial(Classifier):
    """A classifier with a domain discriminator beside f, behind a gradient reversal."""

    def __init__(
        self, backbone: Backbone, n_classes: int, width: int, discriminator_width: int, *, dropout: float = 0.5
    ) -> None:
        super().__init__(backbone, n_classes, width, dropout=dropout)
        self.discriminator = discriminator(width, discriminator_width)

    def domain_logits(self, features: Tensor, reversal: Tensor | float) -> Tensor:
        """How sure the discriminator is that features are the source's; its gradient into them is reversed."""
        return cast(Tensor, self.discriminator(reverse_gradient(features, reversal)))[:, 0]


def discriminator(in_features: int, width: int) -> nn.Sequential:
    """Two hidden layers with batch norm, and one logit."""
    return nn.Sequential(
        Wide(in_features, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        Wide(width, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, 1),
    )


@dataclass(frozen=True)
class Encounter:
    """One forward pass over [source; target] together: class logits of f and domain logits of d."""

    source: Tensor
    target: Tensor
    domain_source: Tensor
    domain_target: Tensor

    @classmethod
    def of(cls, network: DomainAdversarial, batch: Batch, reversal: Tensor | float) -> Encounter:
        count = len(batch.source)
        features = network.features(batch.both)
        logits = cast(Tensor, network.f(features))
        domain = network.domain_logits(features, reversal)
        return cls(logits[:count], logits[count:], domain[:count], domain[count:])

    def report(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """The sum of the terms as the loss, the terms themselves, and how the game stands."""
        return {
            "loss": torch.stack(list(terms.values())).sum(),
            **terms,
            "domain_accuracy": domain_accuracy(self.domain_source, self.domain_target),
            "target_entropy": entropy(self.target.detach()).mean(),
        }
