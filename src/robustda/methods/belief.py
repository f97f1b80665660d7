"""Which source labels are believed: what concord and clarity begin with. No noise rate is needed for it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from robustda.errors import DataError, RobustDAWarning
from robustda.methods.base import Method, Task

__all__ = ["Believing"]

_SIDE = 200  # pixels: in smaller images noise has been averaged away


@dataclass(kw_only=True)
class Believing(Method):
    """A method that judges every source label by examples that are like it (`noise/evidence.py`).

    A label is believed, replaced by a class that is more likely than not, or the example is left out.

    Parameters
    ----------
    clean: judge the source's labels first; without it they are all believed.
    corrupted: tell_apart looks for corrupted pixels in photographs first and judges such examples among their own kind,
        for they resemble each other more than their classes; ignore does not. Vectors are taken as they are.
    """

    clean: bool = True
    corrupted: Literal["tell_apart", "ignore"] = "tell_apart"

    def believed(self, source: np.ndarray, task: Task) -> Tensor:
        """One row an example: 1 at the class that it is believed to be of, or zeros. Leaves `trust` in the memory.

        `source` are features of all source examples. What a person has decided is believed as it is.
        """
        labels = task.labels.cpu()
        given = F.one_hot(labels, task.n_classes).double()
        if not self.clean:
            return given
        from robustda.noise.evidence import label_evidence

        try:
            odd = self.odd_ones(task)
            evidence = label_evidence(source, labels.numpy(), task.n_classes, corrupted=odd, seed=self.seed)
        except DataError as error:
            warnings.warn(
                f"the labels could not be judged and are all believed: {error}", RobustDAWarning, stacklevel=2
            )
            return given
        decided = torch.zeros(len(labels), dtype=torch.bool) if task.confirmed is None else task.confirmed.cpu()
        wrong = torch.where(decided, 0.0, torch.from_numpy(evidence.wrong))
        counts = torch.bincount(labels, minlength=task.n_classes).clamp(min=1)
        task.memory |= {
            "trust": (torch.from_numpy(~evidence.issues) | decided).float(),
            "mean_loss": -torch.log1p(-wrong.clamp(max=1 - 1e-9)).float(),
            "threshold": torch.full((len(labels),), 0.5).neg().log1p().neg(),
            "noise_rate": torch.zeros(task.n_classes, dtype=torch.float64).index_add_(0, labels, wrong) / counts,
        }
        sure = torch.from_numpy(evidence.confidence > 0.5).double()[:, None]
        suggested = F.one_hot(torch.from_numpy(evidence.suggested), task.n_classes).double() * sure
        suggested = torch.where(decided[:, None], given, suggested)
        lost = suggested.sum(dim=0) == 0  # a class that nobody is believed to be of keeps those who were given it
        return torch.where(lost & (given > 0), given, suggested)

    def odd_ones(self, task: Task) -> np.ndarray | None:
        """Whose pixels are corrupted; None where that is not asked for or cannot be told."""
        if self.corrupted == "ignore":
            return None
        odd = task.corrupted
        if odd is None:
            if not task.source.images or min(task.source.array.shape[1:3]) < _SIDE:
                return None
            from robustda.noise.corruption import image_corruption

            odd = image_corruption(task.source.array).corrupted
        labels = task.labels.cpu().numpy()
        # A class whose every example is odd would have nobody left to be judged by.
        told = np.array_equal(np.unique(labels[~odd]), np.unique(labels))
        return odd if told else None
