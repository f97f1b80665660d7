"""MentorNet (PD): Jiang et al., MentorNet: Learning Data-Driven Curriculum for Very Deep Neural Networks, ICML 2018.

A small network g, the mentor, gives each source example a weight from its loss, the loss's distance to a moving average
of a loss quantile, its label, and how far training has come. Phase `mentor` teaches g a predefined curriculum (PD) on
made-up losses; phase `student` trains the classifier with the weights that g, now fixed, gives.

The curriculum is the one of the authors' released PD mentor: all examples at first (burn-in, 18 %), then those below
the quantile (self-paced), and in the last tenth a linear slope instead of the edge.

Departures: the authors' dropping of random examples is left out; the quantile's average starts at its first value, not
at zero; the risk is divided by the sum of the weights. No adaptation: the target is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustda.losses import masked_mean
from robustda.methods.base import Batch, Method, Phase, Task
from robustda.methods.checks import check_at_least, check_share
from robustda.methods.registry import register

__all__ = ["Mentor", "MentorNet", "RunningQuantile", "predefined_curriculum"]

_LESSON = 512  # made-up losses in one step of g's own training
_PERCENTS = 100  # g is told the progress in whole percents
_LARGEST_LOSS, _LARGEST_DISTANCE = 30.0, 5.0  # the range of those losses, and of their distances to the quantile


@register("mentornet")
@dataclass(kw_only=True)
class MentorNet(Method):
    """Cross-entropy on the source, each example weighted by a mentor network.

    Parameters
    ----------
    quantile: the quantile of the batch's losses that g measures losses against (p).
    ema_decay: weight of the past in the quantile's moving average.
    burn_in: share of the run in which all examples have weight 1.
    slope_from: share of the run from which weights fall along a slope and not off an edge.
    slope: distance above the quantile at which the slope reaches 0.
    mentor_steps: steps of the mentor's own training.
    mentor_rate: learning rate of it.
    """

    summary: ClassVar[str] = "a small LSTM, taught a predefined curriculum, weights each example by its loss"
    paper: ClassVar[str] = (
        "Jiang et al., MentorNet: Learning Data-Driven Curriculum for Very Deep Neural Networks on Corrupted Labels, "
        "ICML 2018"
    )

    quantile: float = 0.75
    ema_decay: float = 0.9
    burn_in: float = 0.18
    slope_from: float = 0.9
    slope: float = 1.0
    mentor_steps: int = 1000
    mentor_rate: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self, "quantile", "burn_in", "slope_from")
        check_share(self, "ema_decay", below_one=True)
        check_at_least(self, slope=1e-6, mentor_steps=1, mentor_rate=0)

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.mentor, self.student]

    def mentor(self, task: Task) -> Phase:
        """Teach g the predefined curriculum. Leaves its weights in the task's memory."""
        mentor = Mentor(task.n_classes)

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            losses, distances, labels, shares = self.lesson(task.n_classes, task.device)
            wanted = self.curriculum(distances, shares)
            logits = mentor.logits(losses, distances, labels, shares)
            agreement = 1 - (torch.sigmoid(logits.detach()) - wanted).abs().mean()
            return {"loss": F.binary_cross_entropy_with_logits(logits, wanted), "agreement": agreement}

        def hand_over() -> None:
            task.memory |= {f"mentor/{name}": tensor.clone() for name, tensor in mentor.state_dict().items()}

        # The rate falls to nothing: what is left of it at the end is the blur of the curriculum's edge.
        return Phase(
            "mentor",
            mentor,
            loss,
            self.mentor_steps,
            lambda progress: self.mentor_rate * (1 - progress),
            uses_target=False,
            end=hand_over,
        )

    def student(self, task: Task) -> Phase:
        """Train the classifier with g's weights."""
        network = self.network(task.source.example_shape, task.n_classes)
        mentor = Mentor(task.n_classes).to(task.device).requires_grad_(False).eval()
        prefix = "mentor/"
        mentor.load_state_dict({k.removeprefix(prefix): v for k, v in task.memory.items() if k.startswith(prefix)})
        average = RunningQuantile(self.quantile, self.ema_decay, device=task.device)

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            losses = F.cross_entropy(network(batch.source), batch.labels, reduction="none")
            seen = losses.detach()
            distances = seen - average.update(seen, first=progress == 0)
            weights = torch.sigmoid(mentor.logits(seen, distances, batch.labels, progress.expand(len(seen))))
            weights = torch.where(progress < self.burn_in, torch.ones_like(weights), weights)
            return {
                "loss": masked_mean(losses, weights),
                "kept_share": weights.mean(),
                "loss_quantile": average.value.clone(),
            }

        return Phase(
            "student",
            network,
            loss,
            self.steps,
            self.rate(self.steps),
            uses_target=False,
            stateful={"average": average},
        )

    def curriculum(self, distances: Tensor, shares: Tensor) -> Tensor:
        """The predefined curriculum at these settings."""
        return predefined_curriculum(
            distances, shares, burn_in=self.burn_in, slope_from=self.slope_from, slope=self.slope
        )

    def lesson(self, n_classes: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Made-up losses, distances to the quantile, labels and shares of the run; half the distances are small."""
        losses = _LARGEST_LOSS * torch.rand(_LESSON, device=device) ** 2
        distances = _LARGEST_DISTANCE * (2 * torch.rand(_LESSON, device=device) - 1)
        near = torch.arange(_LESSON, device=device) % 2 == 0
        distances = torch.where(near, distances / _LARGEST_DISTANCE, distances)
        labels = torch.randint(n_classes, (_LESSON,), device=device)
        return losses, distances, labels, torch.rand(_LESSON, device=device)


def predefined_curriculum(
    distances: Tensor, shares: Tensor, *, burn_in: float = 0.18, slope_from: float = 0.9, slope: float = 1.0
) -> Tensor:
    """v*, the weights that g is taught: from how far a loss lies above the quantile, and the share of the run done.

    >>> predefined_curriculum(torch.tensor([2.0, -0.1, 0.5, 0.5]), torch.tensor([0.1, 0.5, 0.5, 0.95])).tolist()
    [1.0, 1.0, 0.0, 0.5]
    """
    edge = (distances <= 0).to(distances.dtype)
    sloping = (1 - distances / slope).clamp(0, 1)
    weights = torch.where(shares < slope_from, edge, sloping)
    return torch.where(shares < burn_in, torch.ones_like(weights), weights)


class Mentor(nn.Module):
    """g: a bidirectional LSTM with one unit over (loss, distance), embeddings of label and progress, 20 tanh units."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.pair = nn.LSTM(1, 1, bidirectional=True, batch_first=True)
        self.label = nn.Embedding(n_classes, 2)
        self.progress = nn.Embedding(_PERCENTS, 5)
        self.hidden = nn.Linear(2 + 2 + 5, 20)
        self.out = nn.Linear(20, 1)
        # A predefined curriculum does not ask for the label: with many classes, those that g has hardly seen while it
        # was taught must not tip the scales.
        nn.init.zeros_(self.label.weight)

    def logits(self, losses: Tensor, distances: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
        """The weights before their sigmoid. Inputs beyond what g was taught are taken to its range's ends."""
        losses = losses.clamp(max=_LARGEST_LOSS)
        distances = distances.clamp(-_LARGEST_DISTANCE, _LARGEST_DISTANCE)
        _, (last, _) = self.pair(torch.stack([losses, distances], dim=1)[:, :, None])
        percent = (shares * _PERCENTS).long().clamp(0, _PERCENTS - 1)
        inputs = torch.cat([last[0], last[1], self.label(labels), self.progress(percent)], dim=1)
        return cast(Tensor, self.out(torch.tanh(self.hidden(inputs))))[:, 0]


class RunningQuantile:
    """The moving average of a quantile of the batches' losses, kept on the device."""

    def __init__(self, quantile: float, decay: float, device: torch.device | str = "cpu") -> None:
        self.quantile, self.decay = quantile, decay
        self.value = torch.zeros((), device=device)

    def update(self, losses: Tensor, *, first: Tensor) -> Tensor:
        """Enter the losses of a batch; `first` starts the average."""
        # The nearest rank, by a sort: torch.quantile may wait for the host.
        now = losses.sort().values[round(self.quantile * (len(losses) - 1))]
        self.value.copy_(torch.where(first, now, self.decay * self.value + (1 - self.decay) * now))
        return self.value

    def state(self) -> dict[str, Tensor]:
        """Everything needed to go on later, as tensors."""
        return {"value": self.value}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up where `state` left off."""
        self.value.copy_(state["value"])
