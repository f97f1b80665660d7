"""Concord, tuned: what the members of concord agree on becomes the lesson of a network that is trained.

1. On frozen features, as `concord` does it: source labels are believed, mended or left out, and every target example
   gets the label that most members give it, with the share of them that do as its weight. Where the examples are
   photographs, those with corrupted pixels are found first and judged among their own kind, so that a blurred image
   keeps its right label.
2. The whole network learns from both: cross-entropy on the believed source and, by weight, on the target; the class
   confusion of its predictions on the target is made small (Jin et al., Minimum Class Confusion for Versatile Domain
   Adaptation, ECCV 2020); and, if asked for, so is the margin discrepancy. The learning rate ends at zero.
3. A few times on the way the members are asked anew, on the features that the network has by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from robustda.data.batches import Inputs
from robustda.losses import class_confusion, margin_discrepancy
from robustda.methods.base import Batch, Phase, Schedule, Task, check_at_least, check_share, forward_all, register
from robustda.methods.concord import Agreeing, votes
from robustda.methods.mdd import Play
from robustda.methods.prototypes import no_loss, unit_features
from robustda.nets import Adversarial, Classifier, Identity

__all__ = ["ConcordTuned"]


@register("concord_tuned")
@dataclass(kw_only=True)
class ConcordTuned(Agreeing):
    """Concord's labels for both domains, and a network that learns from them.

    Parameters
    ----------
    pseudo: weight of the target's labels in the loss; it rises from 0 to this, for they get better on the way.
    trusting: power to which the share of members behind a target label is raised to become its weight; 0 counts all
        alike.
    confusion: weight of the class confusion on the target.
    temperature: logits are divided by it where confusion is measured.
    discrepancy: weight of the margin discrepancy, with the adversary's gradient scaled by it; 0 leaves it out.
    alpha: weight of the source's disparity in it, α = exp ρ.
    refreshes: how often the members are asked anew, at equal distances.
    smoothing: share of every label that is spread over all classes.
    """

    summary: ClassVar[str] = "concord's labels for both domains teach a network, which is asked again on the way"

    pseudo: float = 1.0
    trusting: float = 1.0
    confusion: float = 1.0
    temperature: float = 2.5
    discrepancy: float = 0.0
    alpha: float = 4.0
    refreshes: int = 3
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, pseudo=0, trusting=0, confusion=0, temperature=1e-3, discrepancy=0, alpha=1, refreshes=0)
        check_share(self, "smoothing", below_one=True)

    def network(self, example_shape: tuple[int, ...], n_classes: int, *, pretrained: bool = True) -> Classifier:
        kind = Adversarial if self.discrepancy else Classifier
        return kind(self.make_backbone(example_shape, pretrained), n_classes, self.width, dropout=self.dropout)

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.agree, self.tune]

    def agree(self, task: Task) -> Phase:
        """On frozen features, of no steps. Leaves labels for both domains in the task's memory."""
        network = self.frozen(task.source.example_shape, task.n_classes).requires_grad_(False)

        def settle() -> None:
            source, target = unit_features(network, task.source).cpu(), unit_features(network, task.target).cpu()
            believed = self.believed(source, task)
            known = believed.sum(dim=1) > 0
            task.memory["believed"] = torch.where(known, believed.argmax(dim=1), -1).to(task.device)
            labels, weights = torch.zeros(len(target), dtype=torch.long), torch.zeros(len(target))
            if self.pseudo:
                labels, share = votes(self.opinions(source.double(), believed, target.double()), target.double())
                weights = (share**self.trusting).float()
            task.memory |= {"target_labels": labels.to(task.device), "target_weights": weights.to(task.device)}

        return Phase("agree", network, no_loss, 0, lambda progress: 0.0, end=settle)

    def tune(self, task: Task) -> Phase:
        """Learn from the labels that were found."""
        network = self.network(task.source.example_shape, task.n_classes)
        memory = task.memory
        believed, labels, weights = memory["believed"], memory["target_labels"], memory["target_weights"]

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            assert batch.target_rows is not None
            terms: dict[str, Tensor] = {}
            if isinstance(network, Adversarial):
                play = Play.of(network, batch, self.discrepancy)
                source, target = play.source, play.target
                terms |= margin_discrepancy(
                    play.adversary_source,
                    play.labels_source,
                    play.adversary_target,
                    play.labels_target,
                    alpha=self.alpha,
                )
            else:
                source, target = network(batch.both).split(len(batch.rows))
            terms["risk"] = F.cross_entropy(source, believed[batch.rows], label_smoothing=self.smoothing)
            if self.pseudo:
                rows = batch.target_rows
                losses = F.cross_entropy(target, labels[rows], reduction="none", label_smoothing=self.smoothing)
                terms["pseudo"] = self.pseudo * progress * (weights[rows] * losses).mean()
            if self.confusion:
                terms["confusion"] = self.confusion * class_confusion(target, self.temperature)
            agree = (target.argmax(dim=1) == labels[batch.target_rows]).float().mean()
            return {"loss": torch.stack(list(terms.values())).sum(), **terms, "agreement": agree.detach()}

        def ask_again() -> None:
            given = F.one_hot(believed.clamp(min=0), task.n_classes).double() * (believed >= 0)[:, None]
            source, target = (self.seen(network, inputs).cpu().double() for inputs in (task.source, task.target))
            found, share = votes(self.opinions(source, given.cpu(), target), target)
            labels.copy_(found)  # in place: a recorded step reads them there
            weights.copy_(share**self.trusting)

        return Phase(
            "tune",
            network,
            loss,
            self.steps,
            self.rate(self.steps),
            rows=(believed >= 0).nonzero()[:, 0].cpu(),
            epoch_steps=self.steps // (self.refreshes + 1) + 1,
            after_epoch=ask_again if self.refreshes and self.pseudo else None,
        )

    def seen(self, network: Classifier, inputs: Inputs) -> Tensor:
        """What the network makes of the inputs, of unit length: the features of its backbone, if that learns at all.

        Else those of the bottleneck, which are more of the network's own opinion.
        """
        if isinstance(network.backbone, Identity):
            return F.normalize(forward_all(network.features, inputs))
        return unit_features(network, inputs)

    def rate(self, steps: int) -> Schedule:
        """The learning rate falls to zero along half a cosine: at the end the weights have settled."""
        return lambda progress: self.learning_rate * (1 + torch.cos(torch.pi * torch.as_tensor(progress))) / 2
