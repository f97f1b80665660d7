"""DAN: Long et al., Learning Transferable Features with Deep Adaptation Networks, ICML 2015.

The source risk, plus the multi-kernel maximum mean discrepancy (MK-MMD²) between the domains at the bottleneck and at
the logits.

Departures: the kernels of the family weigh the same (the paper tunes their weights by a quadratic program that later
work dropped), all pairs of the batch are used rather than the linear-time estimate, and bottleneck, learning rate and
schedule are those of all methods here (published for ResNet-50: bottleneck 256, learning rate .003).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

from torch import Tensor

from robustda.alignment import Estimator, multi_kernel_mmd
from robustda.losses import entropy, weighted_risk
from robustda.methods.base import Batch, Method, Phase, Task
from robustda.methods.checks import check_at_least
from robustda.methods.registry import register

__all__ = ["DAN"]


@register("dan")
@dataclass(kw_only=True)
class DAN(Method):
    """Source risk and kernel discrepancy on all the noisy source data.

    Parameters
    ----------
    mmd_weight: weight of MK-MMD² (λ).
    on_logits: whether the logits are aligned too, and not the bottleneck alone.
    estimator: of MK-MMD²: unbiased, which may be negative, or biased, which is not; the log names it as mmd_unbiased or
        mmd_biased.
    """

    summary: ClassVar[str] = "multi-kernel mean discrepancy at the bottleneck and the logits, no defence against noise"
    paper: ClassVar[str] = "Long et al., Learning Transferable Features with Deep Adaptation Networks, ICML 2015"

    mmd_weight: float = 1.0
    on_logits: bool = True
    estimator: Estimator = "unbiased"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, mmd_weight=0)

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.adapt]

    def adapt(self, task: Task) -> Phase:
        """The only phase: source risk and MK-MMD² together."""
        network = self.network(task.source.example_shape, task.n_classes)

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            count = len(batch.source)
            features = network.features(batch.both)
            logits = cast(Tensor, network.f(features))
            risk = weighted_risk(logits[:count], batch.labels)
            mmd = multi_kernel_mmd(features[:count], features[count:], estimator=self.estimator)
            if self.on_logits:
                mmd = mmd + multi_kernel_mmd(logits[:count], logits[count:], estimator=self.estimator)
            return {
                "loss": risk + self.mmd_weight * mmd,
                "risk": risk,
                f"mmd_{self.estimator}": mmd,  # the unbiased one may well be below zero
                "target_entropy": entropy(logits[count:].detach()).mean(),
            }

        return Phase("adapt", network, loss, self.steps, self.rate(self.steps))
