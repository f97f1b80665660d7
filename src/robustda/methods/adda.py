"""ADDA: Tzeng et al., Adversarial Discriminative Domain Adaptation, CVPR 2017.

Phase `source` trains encoder and classifier on the source. Phase `adapt` freezes both, starts a second encoder as a
copy of the first, and trains that one on the target alone so that a discriminator takes its features for the source's.
The frozen classifier predicts on top of the target encoder.

As in the paper the encoder does not receive a reversed gradient: it minimises the discriminator's loss under inverted
labels, which does not vanish when the discriminator wins.

Departures: each phase takes its share of the same number of steps as the other methods; the two updates of the game are
made in one step; the discriminator looks at the features before dropout (with it on one side only, it would see no
domains but dropout), and has batch norm as the others'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from robustda.alignment import domain_accuracy, domain_loss
from robustda.losses import entropy, weighted_risk
from robustda.methods.base import Batch, Method, Phase, Task
from robustda.methods.checks import check_at_least, check_share
from robustda.methods.dann import DomainAdversarial
from robustda.methods.registry import register
from robustda.nets import Classifier

__all__ = ["ADDA"]

_SOURCE = "source/"  # where the first phase's weights lie in the task's memory


@register("adda")
@dataclass(kw_only=True)
class ADDA(Method):
    """A source network first, then a target encoder that imitates the source encoder's features.

    Parameters
    ----------
    source_share: share of the steps that the source network is trained for; the rest are the game's.
    encoder_rate: learning rate of the target encoder in the game, as a share of the discriminator's. The game knows
        nothing of classes: at a tenth the encoder wanders off, and ends below source-only where labels are clean.
    discriminator_width: width of the discriminator's two hidden layers.
    """

    summary: ClassVar[str] = "a second encoder for the target, trained against a domain discriminator"
    paper: ClassVar[str] = "Tzeng et al., Adversarial Discriminative Domain Adaptation, CVPR 2017"

    source_share: float = 0.5
    encoder_rate: float = 0.01
    discriminator_width: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, encoder_rate=0, discriminator_width=1)
        check_share(self, "source_share")

    def network(self, example_shape: tuple[int, ...], n_classes: int, *, pretrained: bool = True) -> DomainAdversarial:
        backbone = self.make_backbone(example_shape, pretrained)
        return DomainAdversarial(backbone, n_classes, self.width, self.discriminator_width, dropout=self.dropout)

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.source, self.adapt]

    def source(self, task: Task) -> Phase:
        """Train F_s and the classifier. Leaves their weights in the task's memory."""
        network = self.source_network(task)
        steps = max(1, round(self.source_share * self.steps))

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            return {"loss": weighted_risk(network(batch.source), batch.labels)}

        def hand_over() -> None:
            task.memory |= {_SOURCE + name: tensor.clone() for name, tensor in network.state_dict().items()}

        return Phase("source", network, loss, steps, self.rate(steps), uses_target=False, end=hand_over)

    def adapt(self, task: Task) -> Phase:
        """Train F_t against the discriminator; F_s and the classifier stay as they are."""
        learned = {k.removeprefix(_SOURCE): v for k, v in task.memory.items() if k.startswith(_SOURCE)}
        frozen = self.source_network(task, pretrained=False)
        frozen.load_state_dict(learned)
        frozen.to(task.device).requires_grad_(False).eval()
        network = self.network(task.source.example_shape, task.n_classes)
        network.load_state_dict(learned, strict=False)  # the discriminator is new
        network.f.requires_grad_(False)
        steps = max(1, self.steps - round(self.source_share * self.steps))

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            frozen.backbone.low_precision = network.backbone.low_precision
            source, target = undropped(frozen, batch.source), undropped(network, batch.target)
            features, count = torch.cat([source, target]), len(source)
            domain = cast(Tensor, network.discriminator(features.detach()))[:, 0]
            # The encoder's turn: the same discriminator, whose weights are constants now.
            constant = {name: parameter.detach() for name, parameter in network.discriminator.named_parameters()}
            fooled = cast(Tensor, functional_call(network.discriminator, constant, features))[count:, 0]
            terms = {
                "domain_loss": domain_loss(domain[:count], domain[count:]),
                "inverted_loss": F.softplus(-fooled).mean(),
            }
            return {
                "loss": torch.stack(list(terms.values())).sum(),
                **terms,
                "domain_accuracy": domain_accuracy(domain[:count], domain[count:]),
                "target_entropy": entropy(network.f(target.detach())).mean(),
            }

        return Phase("adapt", network, loss, steps, self.rate(steps))

    def source_network(self, task: Task, *, pretrained: bool = True) -> Classifier:
        """F_s and the classifier, without a discriminator."""
        return Method.network(self, task.source.example_shape, task.n_classes, pretrained=pretrained)

    def parameter_groups(self, network: nn.Module) -> list[dict[str, Any]]:
        """As all methods', but in the game the encoder is held back, so that the discriminator is not left behind."""
        groups = super().parameter_groups(network)
        if not isinstance(network, DomainAdversarial):
            return groups
        judges = {id(parameter) for parameter in network.discriminator.parameters()}
        held_back = [
            {"params": [p for p in group["params"] if id(p) not in judges], "share": self.encoder_rate * group["share"]}
            for group in groups
        ]
        return [{"params": list(network.discriminator.parameters()), "share": 1.0}] + [
            g for g in held_back if g["params"]
        ]


def undropped(network: Classifier, x: Tensor) -> Tensor:
    """The features without the dropout that ends the bottleneck."""
    with torch.autocast(x.device.type, torch.bfloat16, enabled=network.backbone.low_precision):
        features = network.backbone(x)
    return cast(Tensor, network.bottleneck[:-1](features.float()))
