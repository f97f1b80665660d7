"""Source-only: cross-entropy on all the noisy source data, the target ignored: what every method must beat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from robustda.losses import weighted_risk
from robustda.methods.base import Batch, Method, Phase, Task
from robustda.methods.registry import register

__all__ = ["SourceOnly"]


@register("source_only")
@dataclass(kw_only=True)
class SourceOnly(Method):
    """Cross-entropy on all source examples as they are labelled."""

    summary: ClassVar[str] = "cross-entropy on the noisy source, no adaptation"
    paper: ClassVar[str] = "He et al., Deep Residual Learning for Image Recognition, CVPR 2016 (as the baseline)"

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.train]

    def train(self, task: Task) -> Phase:
        """The only phase."""
        network = self.network(task.source.example_shape, task.n_classes)

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            return {"loss": weighted_risk(network(batch.source), batch.labels)}

        return Phase("train", network, loss, self.steps, self.rate(self.steps), uses_target=False)
