"""How a network stands on the target while it is trained: accuracy for the log, and criteria that need no labels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from robustda.data.domain import Domain
from robustda.health import Health
from robustda.methods.base import Phase, Task
from robustda.methods.task import forward_all
from robustda.nets import Classifier
from robustda.resume import SELECTED
from robustda.select import scores, validation_score

__all__ = ["accuracy", "judge", "sample_logits", "schedules"]

_SAMPLE = 1024  # examples of the target by which a run is judged, beside its accuracy
_WORST = float("-inf")


def judge(
    phase: Phase, task: Task, target: Domain, health: Health, step: int, chosen: str, every: bool = False
) -> dict[str, float]:
    """How the network stands on the target, in one pass over it: over a sample, where there are no labels to score.

    Accuracy is for the log only. The best network by a criterion that needs no labels is remembered, if one is chosen.
    With `every` the one that needs the source, too, is logged whether it is chosen or not.
    """
    sample, memory = task.target.spread(_SAMPLE), task.memory
    labelled = target.y is not None
    logits = _logits(phase, task, None if labelled else sample)
    seen = logits[sample.to(logits.device)] if labelled else logits
    report = health.check(phase, step, seen)
    if labelled:
        report["target_accuracy"] = accuracy(logits.argmax(dim=1).cpu().numpy(), target)
    found = scores(seen)
    if found and (chosen == "dev" or (every and isinstance(phase.network, Classifier))):
        phase.network.eval()
        found["dev"] = validation_score(phase.network, task, _SAMPLE)
        phase.network.train()
    if chosen != "last" and found.get(chosen, _WORST) > float(memory.get("select_score", _WORST)):
        memory |= {"select_score": torch.tensor(found[chosen]), "select_step": torch.tensor(step)}
        memory |= {SELECTED + name: tensor.clone() for name, tensor in phase.network.state_dict().items()}
    return report | {f"select_{name}": value for name, value in found.items()}


def sample_logits(phase: Phase, task: Task) -> Tensor:
    """The network's logits for a sample of the target, between two steps of training."""
    return _logits(phase, task, task.target.spread(_SAMPLE))


def accuracy(predicted: np.ndarray, target: Domain) -> float:
    """The share of the target's known labels that were predicted."""
    assert target.y is not None
    known = target.y >= 0
    return float((predicted[known] == target.y[known]).mean())


def schedules(phase: Phase, step: int, rate_share: float) -> dict[str, float]:
    """The learning rate, and whatever else follows a schedule, as it was in this step."""
    progress = torch.tensor(step / phase.steps)
    others = {name: float(value(progress)) for name, value in phase.schedules.items()}
    return {"learning_rate": rate_share * float(phase.learning_rate(progress)), **others}


def _logits(phase: Phase, task: Task, rows: Tensor | None) -> Tensor:
    """For rows of the target, or all of it."""
    phase.network.eval()
    logits = forward_all(phase.network, task.target, rows)
    phase.network.train()
    return logits
