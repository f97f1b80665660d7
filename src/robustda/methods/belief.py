"""Which source labels are believed: what concord and clarity begin with. No noise rate is needed for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from robustda.columns import Described, columns_of
from robustda.errors import DataError, RobustDAWarning
from robustda.methods.base import Method, Task
from robustda.presence import classes_there

__all__ = ["Belief", "Believing"]

_LIKELY = 0.5  # the probability from which on a class is believed
_SURE = 0.9  # the same of corrupted examples: if one in five of their labels is wrong, they had better be left out
_ODD = "odd"  # in the task's memory: which source examples are corrupted, where that was looked for
_HOPELESS = 0.7  # of the labels wrong: then nothing is said of classes that the target lacks


@dataclass(frozen=True, eq=False)
class Belief:
    """What each source example is believed to be of."""

    given: Tensor
    suggested: Tensor
    """a class for each example, −1 for none"""
    n_classes: int
    others: tuple[Tensor, ...] = ()
    """the same by other readings of the labels, if there are any"""
    as_given: bool = False
    """whether the labels were judged, and something may be learned from them as they were given, too"""

    @cached_property
    def lost(self) -> Tensor:
        """The classes that nobody is believed to be of: they keep those who were given them."""
        return torch.bincount(self.suggested[self.suggested >= 0], minlength=self.n_classes) == 0

    @property
    def codes(self) -> Tensor:
        """One class for each example, −1 for none; the first of them where it is believed to be of two."""
        kept = self.lost[self.given]
        first = torch.where(self.suggested >= 0, torch.minimum(self.suggested, self.given), self.given)
        return torch.where(kept, first, self.suggested)

    @property
    def readings(self) -> Tensor:
        """The codes by each reading, side by side: (m, R)."""
        others = [Belief(self.given, suggested, self.n_classes) for suggested in self.others]
        return torch.stack([self.codes, *(other.codes for other in others)], dim=1)

    def rows(self, chosen: Tensor) -> Tensor:
        """For each of these examples a row with 1 at the class that it is believed to be of, or zeros."""
        given, suggested = self.given[chosen], self.suggested[chosen]
        named = F.one_hot(given, self.n_classes).double()
        believed = F.one_hot(suggested.clamp(min=0), self.n_classes).double() * (suggested >= 0)[:, None]
        return torch.where(self.lost & (named > 0), named, believed)


@dataclass(kw_only=True)
class Believing(Method):
    """A method that judges every source label by examples that are like it (`noise/evidence.py`).

    A label is believed, replaced by a class that is more likely than not, or the example is left out. Of corrupted
    examples, which hardly bear a label out, more is asked.

    Parameters
    ----------
    clean: judge the source's labels first; without it they are all believed.
    corrupted: tell_apart looks for corrupted pixels in photographs first and judges such examples among their own kind,
        for they resemble each other more than their classes; ignore does not. Vectors are taken as they are.
    """

    clean: bool = True
    corrupted: Literal["tell_apart", "ignore"] = "tell_apart"

    def believed(
        self, source: Described, task: Task, unit: Callable[[np.ndarray], np.ndarray], *, by_pixels: bool = False
    ) -> Belief:
        """What each source example is believed to be of. Leaves `trust`, `learned_as`, `rules` in the memory.

        `source` are features of all source examples, which `unit` brings to unit length, all or some at a time; where
        they are bare pixels, nothing is said of what resembles no class. What a person has decided is believed as it
        is.
        """
        labels = task.labels.cpu()
        given = Belief(labels, labels, task.n_classes)
        if not self.clean:
            return given
        from robustda.noise.rules import find_rules
        from robustda.noise.strangers import judge_labels

        try:
            odd = self.odd_ones(task)
            task.memory |= {} if odd is None else {_ODD: torch.from_numpy(odd)}
            evidence = judge_labels(
                source,
                labels.numpy(),
                task.n_classes,
                seen_as=unit,
                corrupted=odd,
                columns=columns_of(source),
                seed=self.seed,
            )
        except DataError as error:
            warnings.warn(
                f"the labels could not be judged and are all believed: {error}", RobustDAWarning, stacklevel=2
            )
            return given
        decided = torch.zeros(len(labels), dtype=torch.bool) if task.confirmed is None else task.confirmed.cpu()
        wrong = torch.where(decided, 0.0, torch.from_numpy(evidence.wrong))
        counts = torch.bincount(labels, minlength=task.n_classes).clamp(min=1)
        needed = np.full(len(labels), _LIKELY) if odd is None else np.where(odd, _SURE, _LIKELY)
        task.memory |= {
            "trust": (torch.from_numpy(evidence.wrong <= 1 - needed) | decided).float(),
            "mean_loss": -torch.log1p(-wrong.clamp(max=1 - 1e-9)).float(),
            "threshold": torch.full((len(labels),), 0.5).neg().log1p().neg(),
            "unlike": torch.tensor(0.0 if by_pixels else evidence.unlike),
            "noise_rate": torch.zeros(task.n_classes, dtype=torch.float64).index_add_(0, labels, wrong) / counts,
        }
        enough = torch.from_numpy(evidence.confidence > needed)
        suggested = torch.where(enough, torch.from_numpy(evidence.suggested), -1)
        suggested = torch.where(decided, labels, suggested)
        known = suggested >= 0
        rules = find_rules(suggested[known].numpy(), labels[known].numpy(), task.n_classes)
        task.memory["rules"] = torch.tensor(rules, dtype=torch.float64).view(-1, 4)
        fixed = decided if odd is None else decided | torch.from_numpy(odd)
        others = [torch.where(fixed, suggested, torch.from_numpy(other)) for other in evidence.others]
        belief = Belief(labels, suggested, task.n_classes, tuple(others), evidence.as_given)
        task.memory["learned_as"] = belief.codes
        return belief

    def share_wrong(self, task: Task) -> float:
        """How many of the labels were judged to be wrong."""
        if "noise_rate" not in task.memory:
            return 0.0
        return float(task.memory["noise_rate"].to(task.device)[task.labels].mean())

    def look_for_classes(
        self, source: np.ndarray, readings: Iterable[np.ndarray], target: np.ndarray, task: Task, rows: np.ndarray
    ) -> np.ndarray:
        """The classes that the target seems to lack, by features of unit length; left in the memory as `missing`.

        `rows` says which source examples these are. The corrupted ones resemble each other more than their class, whose
        mean would lie where nothing of the target is. Each of the `readings` has a class for each of them, −1 for none:
        what most of the readings say is believed.
        """
        sound = self.sound(task, rows)
        found = np.zeros(0, dtype=np.int64)
        # Where most labels are wrong, a class may have a mean that nothing resembles, here or there.
        if self.share_wrong(task) < _HOPELESS:
            each = [(believed, sound & (believed >= 0)) for believed in readings]
            said = [
                classes_there(source[known], believed[known], task.n_classes, target).missing
                for believed, known in each
                if known.any()
            ]
            if said:
                votes = np.bincount(np.concatenate(said), minlength=task.n_classes)
                found = np.flatnonzero(2 * votes > len(said))
        task.memory["missing"] = torch.from_numpy(found)
        return found

    def sound(self, task: Task, rows: np.ndarray) -> np.ndarray:
        """Which of these source examples are not corrupted, as far as that was looked for."""
        if _ODD not in task.memory:
            return np.ones(len(rows), dtype=bool)
        found: np.ndarray = ~task.memory[_ODD].cpu().numpy()[rows]
        return found

    def odd_ones(self, task: Task) -> np.ndarray | None:
        """Whose pixels are corrupted; None where that is not asked for or cannot be told."""
        if self.corrupted == "ignore":
            return None
        odd = task.corrupted
        if odd is None:
            from robustda.noise.corruption import image_corruption
            from robustda.noise.soundness import SIDE

            if not task.source.images or min(task.source.array.shape[1:3]) < SIDE:
                return None

            odd = image_corruption(task.source.array).corrupted
        labels = task.labels.cpu().numpy()
        # A class whose every example is odd would have nobody left to be judged by.
        told = np.array_equal(np.unique(labels[~odd]), np.unique(labels))
        return odd if told else None
