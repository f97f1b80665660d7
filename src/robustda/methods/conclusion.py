"""How a fit of clarity ends: members are asked, and what is said of the target is judged."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from robustda.columns import Described
from robustda.errors import DataError, RobustDAWarning
from robustda.expect import Expected, calibrate, expected_accuracy, temperature_for
from robustda.expect import opinions as other_views
from robustda.methods.base import Task
from robustda.methods.concord import BLOCK, some_rows
from robustda.methods.opinions import TwoOpinions
from robustda.noise.witnesses import Description
from robustda.overlap import PlainWords, plain_words
from robustda.presence import crowded, lacking

if TYPE_CHECKING:
    from robustda.methods.clarity import Clarity

__all__ = ["AS_GIVEN", "KINDS", "LEARNED_BY_KIND", "conclude", "lessons", "lessons_by_kind", "one_length"]

AS_GIVEN = "as_given"  # in the task's memory: whether one reading in three is that of the labels as they were given
KINDS, LEARNED_BY_KIND = "kinds", "learned_by_kind"  # there too: of which class each kind is, and `lessons` in kinds
_POOR = 0.5  # of the target right: less than that is no success
_DISCOUNT = math.log(0.02)  # what is said for a class that the target seems to lack is divided by fifty
_BLOCK = 4096  # target examples that are predicted at a time


def lessons(task: Task) -> Tensor:
    """What those who learn on frozen features take for the classes of the source, in turn: (m, R), −1 for nothing.

    The labels as they were given are those of all examples, of corrupted ones, too.
    """
    believed = task.memory["believed"]
    if not task.memory.get(AS_GIVEN, torch.tensor(False)):
        return believed
    return torch.stack([believed[:, 0], believed[:, -1], task.labels], dim=1)


def lessons_by_kind(task: Task) -> Tensor:
    """The same in kinds, where the classes are divided into such (`kinds.py`)."""
    return task.memory.get(LEARNED_BY_KIND, lessons(task))


@torch.no_grad()
def conclude(
    method: Clarity,
    network: TwoOpinions,
    source: Described,
    target: Described,
    task: Task,
    whole: Described | None = None,
) -> None:
    """Ask the members on these features; find out how much of the target should be right, and what it lacks.

    `whole` is what the network has to go by, where that is more than these.
    """
    taught = lessons(task).cpu()
    known = (taught >= 0).any(dim=1).nonzero()[:, 0].numpy()
    rows, there = some_rows(known, np.arange(len(target)), task.n_classes)
    some = (len(rows), len(there)) != (len(known), len(target))
    xs, xt = one_length(source[rows]), one_length(target[there])
    readings = taught[torch.from_numpy(rows)].T
    by_kind = lessons_by_kind(task).cpu()[torch.from_numpy(rows)].T
    whose = task.memory.get(KINDS, torch.arange(task.n_classes)).cpu()
    found: dict[str, Tensor] = {}
    if network.members is not None:
        labels = [F.one_hot(codes + 1, len(whose) + 1)[:, 1:].double() for codes in by_kind]
        found = method.opinions(torch.from_numpy(xs), labels, torch.from_numpy(xt), block=BLOCK if some else 0)
        network.members.settle(found)
    plain = _plain_words(method, xs, xt, task, rows)
    if network.plain is not None and plain is not None and plain.overlap > 0:
        network.plain.settle(xs, readings, xt, method.plain * plain.overlap, method.seed)
    seen = target if whole is None else whole
    parts = (seen[part] for part in np.array_split(there, range(_BLOCK, len(there), _BLOCK)))
    logits = torch.cat([network.say(torch.from_numpy(part).float().to(task.device)) for part in parts])
    said = logits.double().softmax(dim=1).cpu().numpy()
    missing = method.look_for_classes(xs, readings.numpy(), xt, task, rows)
    believed = task.memory["believed"].cpu()[torch.from_numpy(rows)].T
    codes = _first(believed).numpy()
    kinds = _first(by_kind[: len(believed)]).numpy() if KINDS in task.memory else codes
    xs, codes, kinds = xs[codes >= 0], codes[codes >= 0], kinds[codes >= 0]
    shares = np.bincount(codes, minlength=task.n_classes) / max(1, len(codes))
    task.memory["crowded"] = torch.from_numpy(crowded(said.argmax(axis=1), shares))
    expected = _expected(method, said, xs, kinds, xt, plain, None if some else found, whose.numpy())
    if expected is None:
        return
    network.temperature.fill_(temperature_for(said, expected.value))
    task.memory["expected"] = torch.tensor(expected, dtype=torch.float64, device=task.device)
    if len(missing) and method.missing == "discount":
        if expected.value >= _POOR:
            # As many again: those that the means have named are among them.
            more = lacking(calibrate(said, float(network.temperature)), shares, 2 * len(missing))
            task.memory["missing"] = torch.from_numpy(np.union1d(missing, more))
        network.prior[task.memory["missing"].to(task.device)] = _DISCOUNT


def one_length(some: Described) -> np.ndarray:
    """Features at unit length, in their own precision."""
    features = np.asarray(some)
    unit: np.ndarray = features / np.linalg.norm(features, axis=1, keepdims=True).clip(1e-12)
    return unit


def _plain_words(
    method: Clarity, source: np.ndarray, target: np.ndarray, task: Task, rows: np.ndarray
) -> PlainWords | None:
    """What witnesses who adapt to nothing say of features of unit length; `rows` are those of the source."""
    sound = method.sound(task, rows)
    labels = task.labels.cpu().numpy()[rows]
    return plain_words(source[sound], labels[sound], target, task.n_classes, seed=method.seed)


def _expected(
    method: Clarity,
    said: np.ndarray,
    source: np.ndarray,
    kinds: np.ndarray,
    target: np.ndarray,
    plain: PlainWords | None,
    known: Mapping[str, Tensor] | None,
    whose: np.ndarray,
) -> Expected | None:
    """How much of the target should be right; None where there is too little to compare with.

    `kinds` are the source's, and `whose` says of which class each of them is: mostly they are the classes themselves.
    """
    if known is None:  # of many, the main directions tell enough
        look = Description(np.concatenate([source[::4], target[::4]]), method.seed)
        source, target = look.of(source), look.of(target)
    try:
        views = other_views(source, kinds, target, len(whose), seed=method.seed, known=known)
        classes = np.eye(said.shape[1])[whose]
        expected = expected_accuracy(said, [view @ classes for view in views.values()], plain=plain, of_its_kind=False)
    except DataError:
        return None
    if expected.value < _POOR:
        if plain is not None and plain.overlap > 0.5:
            reason = "the classes overlap, in the source as well"
        else:
            reason = "the domains are too far apart, or the labels too noisy"
        message = (
            f"only about {expected.value:.0%} of the target should be right ({expected.low:.0%} to "
            f"{expected.high:.0%}): by these features {reason}; try another backbone, or label some of the target"
        )
        warnings.warn(message, RobustDAWarning, stacklevel=2)
    return expected


def _first(readings: Tensor) -> Tensor:
    """The class by the first reading that believes in one."""
    codes = readings[0]
    for reading in readings[1:]:
        codes = torch.where(codes >= 0, codes, reading)
    return codes
