"""RTN: Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, NIPS 2016.

The source and the target classifier differ by a residual that is learned: f_S = f_T + Δf(f_T). Only f_S sees the source
labels; f_T is held to the target by the entropy of its predictions there, and the features, fused over layers, are
aligned by MMD. f_T predicts.

Departures: the distances between the fused features z ⊗ f_T are computed exactly from Gram matrices, so no projection
is needed; f_T enters the fusion as probabilities, which keeps the size of the logits from drowning that of z; the
kernels are DAN's five in place of one; network and schedule are those of all methods here. Two more keep f_T from
collapsing, which it otherwise does on new layers and noisy labels: the weight of the entropy rises evenly from 0, since
low entropy is no virtue before anything has been learned; and Δf is scaled down, since a free one lets f_T put
everything into one class and still carry, in its other logits, what f_S needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from robustda.alignment import Estimator, fused_mmd
from robustda.losses import entropy, weighted_risk
from robustda.methods.base import Batch, Method, Phase, Task
from robustda.methods.checks import check_at_least
from robustda.methods.registry import register
from robustda.nets import Backbone, Classifier

__all__ = ["RTN", "ResidualTransfer"]


@register("rtn")
@dataclass(kw_only=True)
class RTN(Method):
    """Residual source classifier, target entropy and fused kernel discrepancy on all the noisy source data.

    Parameters
    ----------
    mmd_weight: weight of MK-MMD² between the fused features (λ).
    entropy_weight: weight that the entropy of the target's predictions comes to in the end (γ).
    residual_scale: what Δf is multiplied with.
    estimator: of MK-MMD²: unbiased, which may be negative, or biased, which is not; the log names it as mmd_unbiased or
        mmd_biased.
    """

    summary: ClassVar[str] = "residual between source and target classifier, fused kernel discrepancy, target entropy"
    paper: ClassVar[str] = "Long et al., Unsupervised Domain Adaptation with Residual Transfer Networks, NIPS 2016"

    mmd_weight: float = 0.3
    entropy_weight: float = 0.3
    residual_scale: float = 0.1
    estimator: Estimator = "unbiased"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, mmd_weight=0, entropy_weight=0, residual_scale=0)

    def network(self, example_shape: tuple[int, ...], n_classes: int, *, pretrained: bool = True) -> ResidualTransfer:
        backbone = self.make_backbone(example_shape, pretrained)
        return ResidualTransfer(
            backbone, n_classes, self.width, residual_scale=self.residual_scale, dropout=self.dropout
        )

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.adapt]

    def adapt(self, task: Task) -> Phase:
        """The only phase: risk of f_S on the source, entropy of f_T on the target, fused MMD."""
        network = self.network(task.source.example_shape, task.n_classes)

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            count = len(batch.source)
            features = network.features(batch.both)
            logits = cast(Tensor, network.f(features))
            shares = torch.softmax(logits, dim=1)
            risk = weighted_risk(network.source_logits(logits[:count]), batch.labels)
            mmd = fused_mmd(
                [features[:count], shares[:count]], [features[count:], shares[count:]], estimator=self.estimator
            )
            target_entropy = entropy(logits[count:]).mean()
            return {
                "loss": risk + self.mmd_weight * mmd + self.entropy_weight * progress * target_entropy,
                "risk": risk,
                f"mmd_{self.estimator}": mmd,  # the unbiased one may well be below zero
                "target_entropy": target_entropy,
            }

        return Phase("adapt", network, loss, self.steps, self.rate(self.steps))


class ResidualTransfer(Classifier):
    """A classifier whose f is f_T, with the residual block Δf that leads from it to f_S."""

    def __init__(
        self, backbone: Backbone, n_classes: int, width: int, *, residual_scale: float, dropout: float = 0.5
    ) -> None:
        super().__init__(backbone, n_classes, width, dropout=dropout)
        self.residual_scale = residual_scale
        self.residual = nn.Sequential(nn.Linear(n_classes, n_classes), nn.ReLU(), nn.Linear(n_classes, n_classes))
        # At first the two classifiers are one: the residual is what has to be learned.
        last = cast(nn.Linear, self.residual[2])
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def source_logits(self, target_logits: Tensor) -> Tensor:
        """f_S(x) from f_T(x)."""
        return target_logits + self.residual_scale * cast(Tensor, self.residual(target_logits))
