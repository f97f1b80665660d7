"""Is the run still worth its time? Non-finite numbers, and collapse: one class for the whole target.

An adversarial game that is lost, or an entropy term that is too strong, often ends in a network that calls all of the
target one class. Its losses look fine; only its predictions tell.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from robustda.errors import RobustDAWarning, RunError
from robustda.methods.base import Method, Phase, Task
from robustda.run import RunFolder

__all__ = ["Diverged", "Health", "remedy"]

_FEWEST = 20  # target examples; of fewer nothing can be said
_SHORT = 100  # steps; of fewer nobody expects much
_COLLAPSED = 0.99
_COMMON = 0.8  # a class that so large a share of the source has may well be all that the target has
# The options that set how strongly the target is pulled away from what the source risk alone would make of it.
_FORCES = ("beta", "mmd_weight", "domain_weight", "entropy_weight")


class Diverged(RunError):
    """A number of the run is not finite any more."""


class Health:
    """Watches a run: `check` looks at what is predicted on the target, and stops a run that has collapsed."""

    def __init__(self, method: Method, task: Task, classes: np.ndarray, folder: RunFolder | None) -> None:
        self._method, self._n_classes, self._classes, self._folder = method, task.n_classes, classes, folder
        counts = torch.bincount(task.labels, minlength=task.n_classes).double()
        self._shares = (counts / counts.sum()).tolist()
        self.was_spread = False
        """Whether it has ever told the target's examples apart; kept with every checkpoint."""
        self.ailing = False
        """Whether the last check found all of the target in one class: no state to keep."""

    def finite(self, phase: Phase, step: int, values: Mapping[str, float | Tensor]) -> None:
        """Stop if one of the values, logged or about to be saved, is no number any more."""
        for name, value in values.items():
            if not bool(torch.as_tensor(value).isfinite().all()):
                raise Diverged(
                    f"training diverged: {name} is not finite at step {step} of phase {phase.name}; "
                    f"{remedy(phase)}{self._kept()}"
                )

    def check(self, phase: Phase, step: int, logits: Tensor) -> dict[str, float]:
        """The share of the target that its most frequent prediction has, from logits for a sample of it.

        Stops a run that once told the target's examples apart and has not done so twice in a row, or at its end.
        """
        share, name = self._largest(logits)
        collapsed = share >= _COLLAPSED and len(logits) >= _FEWEST
        if collapsed and self.was_spread and (self.ailing or step == phase.steps):
            raise RunError(
                f"training collapsed: by step {step} of phase {phase.name} {share:.0%} of the target is predicted to "
                f"be {name!r}, and it was not so before; {self._weaker(phase)}{self._kept()}"
            )
        self.was_spread |= not collapsed
        self.ailing = collapsed and self.was_spread
        return {"largest_class": share}

    def conclude(self, phase: Phase, logits: Tensor) -> None:
        """Warn about a network that has never told the target's examples apart."""
        share, name = self._largest(logits)
        enough = len(logits) >= _FEWEST and self._method.steps >= _SHORT
        if enough and share >= _COLLAPSED and not self.was_spread:
            warnings.warn(
                f"{share:.0%} of the target is predicted to be {name!r}: either it is all of one class, or the model "
                f"has learned too little: give it more steps (now {self._method.steps:,}); if that does not help, "
                f"{self._weaker(phase)}",
                RobustDAWarning,
                stacklevel=2,
            )

    def _largest(self, logits: Tensor) -> tuple[float, str]:
        """The share and name of the class predicted most; no share where that class is most of the source, too."""
        counts = torch.bincount(logits.argmax(dim=1), minlength=self._n_classes)
        best = int(counts.argmax())
        expected = self._shares[best] > _COMMON
        return (0.0 if expected else float(counts[best] / len(logits))), str(self._classes[best])

    def _weaker(self, phase: Phase) -> str:
        params = self._method.params()
        forces = " or ".join(f"{name} (now {params[name]:g})" for name in _FORCES if name in params)
        rate = float(phase.learning_rate(torch.zeros(())))
        return (
            f"try a smaller {forces + ', or a smaller ' if forces else ''}learning rate (this phase starts at {rate:g})"
        )

    def _kept(self) -> str:
        good = self._folder.newest_checkpoint() if self._folder else None
        return f"; the last good checkpoint is {good}" if good else ""


def remedy(phase: Phase) -> str:
    """What to do about numbers that are not finite."""
    rate = float(phase.learning_rate(torch.zeros(())))
    return f"try a smaller learning rate (this phase starts at {rate:g}), or look for extreme values in the features"
