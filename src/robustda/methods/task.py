"""What a method's phases work with: the data of a run on their device, a batch, and what a phase is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from robustda.columns import Described, rows_of
from robustda.description import batch_for_all, describe_all
from robustda.errors import RobustDAWarning
from robustda.glance import glancing
from robustda.nets import Pixels

if TYPE_CHECKING:
    from robustda.data.batches import Inputs
    from robustda.methods.base import Method

__all__ = ["Batch", "Phase", "Schedule", "Stateful", "Task", "forward_all"]

Schedule = Callable[[Tensor], Tensor | float]


@dataclass(frozen=True)
class Batch:
    """What a loss is given: as many source as target examples, their given labels, and which rows they are."""

    source: Tensor
    labels: Tensor
    rows: Tensor
    target: Tensor
    whole: Tensor | None = None
    """source and target in one piece, where they were made so"""

    @property
    def both(self) -> Tensor:
        """The source examples, then the target's: what goes through the network together."""
        return torch.cat([self.source, self.target]) if self.whole is None else self.whole


@dataclass
class Task:
    """The data of one run on their device, and what the phases hand on to each other.

    `memory` holds named tensors; it is saved with every checkpoint, so a phase may rely on what an earlier one left.
    """

    source: Inputs
    labels: Tensor
    target: Inputs
    n_classes: int
    device: torch.device
    memory: dict[str, Tensor] = field(default_factory=dict)
    corrupted: np.ndarray | None = None
    """source examples whose inputs were found to be corrupted before they came here; None where nobody has looked"""
    quick_features: bool = False
    """whether features that are made once are to be of bfloat16 products, which on some CPUs takes half of the time"""
    confirmed: Tensor | None = None
    """source examples whose label a person has kept or corrected: a curriculum has no business to doubt them"""
    made: dict[str, Described] = field(default_factory=dict)
    """what one phase has made and a later one can use, or make again: it is not saved"""
    progress: bool = False
    """whether to show how far it has come where it takes long"""
    heed: Callable[[], None] = lambda: None
    """to be called now and then where it takes long: ends the run if that was asked for"""

    @torch.no_grad()
    def losses(self, network: nn.Module) -> Tensor:
        """The loss of every source example under its given label, unaugmented, in order.

        One number an example: the logits, one for each class too, are there for a batch at a time only.
        """
        size = batch_for_all(self.source)
        parts = zip(self.source.in_order(size), torch.split(self.labels, size), strict=True)
        losses = (nn.functional.cross_entropy(network(x).float(), y, reduction="none") for x, y in parts)
        with glancing(network):
            return _one_after_another(losses, len(self.labels))

    def describe(self, method: Method) -> Described:
        """A fixed description of every source example for plain classifiers and neighbours.

        The features of a pretrained backbone, the vectors themselves, or, where there is nothing better, the pixels.
        """
        backbone = method.make_backbone(self.source.example_shape)
        if backbone.fixed:
            return rows_of(backbone, self.source.array)
        if self.source.images and not backbone.pretrained:
            backbone = Pixels()
            if self.source.crop > 64:
                message = (
                    "the backbone has no pretrained weights, so the noise rate is estimated from pixels, which say "
                    "little about photographs: give --weights, or --noise_rate a number"
                )
                warnings.warn(message, RobustDAWarning, stacklevel=2)
        return describe_all(backbone.to(self.device), self.source, progress=self.progress, heed=self.heed)


class Stateful(Protocol):
    """Something a phase carries along that must survive a restart."""

    def state(self) -> dict[str, Tensor]: ...
    def load(self, state: dict[str, Tensor]) -> None: ...


@dataclass
class Phase:
    """One stage of a method: a network, trained for some steps on some loss.

    `loss` takes a batch and the progress, a tensor that goes from 0 to 1, and returns named scalars: ``"loss"`` is
    minimised, the others are logged. Its shapes must not depend on values, and it must not wait for the device.
    """

    name: str
    network: nn.Module
    loss: Callable[[Batch, Tensor], dict[str, Tensor]]
    steps: int
    learning_rate: Schedule
    rows: Tensor | None = None
    """The source rows to draw from; None means all."""
    uses_target: bool = True
    """Without it no target batch is drawn, and `Batch.target` is empty."""
    epoch_steps: int = 0
    """An epoch is so many steps; the hooks below run between steps, with the network in eval mode."""
    before_epoch: Callable[[], None] | None = None
    after_epoch: Callable[[], None] | None = None
    end: Callable[[], None] | None = None
    stateful: dict[str, Stateful] = field(default_factory=dict)
    task: Task | None = None
    """The data as this phase sees them, where that is not as the run has them: features that were made once, say. It
    shares the run's memory."""
    logits: Callable[[], Tensor] | None = None
    """The logits for all of the target at the end, where there is a shorter way to them than through the network."""
    schedules: dict[str, Schedule] = field(default_factory=dict)
    """What else changes with the progress, beside the learning rate: logged with it."""


@torch.no_grad()
def forward_all(
    network: Callable[[Tensor], Tensor], inputs: Inputs, rows: Tensor | None = None, batch_size: int = 0
) -> Tensor:
    """The network's output for every input, or for some rows, in order; in batches that do not need much memory."""
    batches = inputs.in_order(batch_size or batch_for_all(inputs), rows)
    return _one_after_another((network(batch).float() for batch in batches), len(inputs) if rows is None else len(rows))


def _one_after_another(parts: Iterable[Tensor], count: int) -> Tensor:
    """The parts, which have so many rows in all, in one tensor; none of them is kept by itself.

    Small parts that are kept come to lie between the large things that made them, where these no longer fit when they
    are made again: the more parts, the more memory.
    """
    whole, done = None, 0
    for part in parts:
        if whole is None:
            whole = part.new_empty((count, *part.shape[1:]))
        whole[done : done + len(part)] = part
        done += len(part)
    assert whole is not None
    assert done == count
    return whole
