"""Which examples look mislabelled: by predictions alone, by cleanlab's conventions; duplicates; classes that overlap.

    issues = find_label_issues(labels, pred_probs)                # a mask
    worst = find_label_issues(labels, pred_probs, return_indices_ranked_by="self_confidence")
    quality = get_label_quality_scores(labels, pred_probs)        # lower is worse

Where features are at hand, `label_evidence` finds more, for it chooses the predictions as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import numpy.typing as npt

from robustda.errors import ConfigError
from robustda.noise.checks import check_features, check_labels, check_predictions
from robustda.noise.confident import confident_classes
from robustda.noise.likelihood import explain, posterior
from robustda.noise.witnesses import nearest

__all__ = [
    "Duplicates",
    "Overlap",
    "find_duplicates",
    "find_label_issues",
    "get_label_quality_scores",
    "overlapping_classes",
]

Codes = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Quality = Literal["self_confidence", "normalized_margin"]
Filter = Literal["likelihood", "confident_learning", "predicted_neq_given"]


@overload
def find_label_issues(
    labels: npt.ArrayLike, pred_probs: npt.ArrayLike, *, filter_by: Filter = ..., return_indices_ranked_by: None = None
) -> Flags: ...
@overload
def find_label_issues(
    labels: npt.ArrayLike, pred_probs: npt.ArrayLike, *, filter_by: Filter = ..., return_indices_ranked_by: Quality
) -> Codes: ...
def find_label_issues(
    labels: npt.ArrayLike,
    pred_probs: npt.ArrayLike,
    *,
    filter_by: Filter = "likelihood",
    return_indices_ranked_by: Quality | None = None,
) -> Flags | Codes:
    """The labels that look wrong: a mask, or their rows, the worst first, if a score to rank them by is named.

    ``pred_probs`` (m, K) must come from models that did not see the example. ``likelihood`` asks which labels are more
    likely wrong than right once a transition matrix is fitted; ``confident_learning`` which examples confidently belong
    to another class (Northcutt et al., 2021); ``predicted_neq_given`` which are predicted otherwise. With one class
    only there is nothing to find.

    >>> labels = [0, 0, 0, 1, 1, 1]
    >>> pred_probs = [[0.9, 0.1], [0.8, 0.2], [0.05, 0.95], [0.1, 0.9], [0.2, 0.8], [0.3, 0.7]]
    >>> find_label_issues(labels, pred_probs, filter_by="confident_learning").tolist()
    [False, False, True, False, False, False]
    """
    codes, probabilities = check_predictions(labels, pred_probs)
    rows = np.arange(len(codes))
    if probabilities.shape[1] == 1:
        issues = np.zeros(len(codes), dtype=bool)
    elif filter_by == "likelihood":
        fitted = explain([np.log(np.maximum(probabilities, 1e-6))], codes, usual_weight=1.0)
        belief, _ = posterior(fitted.probabilities, fitted.transition, codes)
        issues = belief[rows, codes] < 0.5
    elif filter_by == "confident_learning":
        confident = confident_classes(codes, probabilities)
        issues = (confident >= 0) & (confident != codes)
    elif filter_by == "predicted_neq_given":
        issues = probabilities.argmax(axis=1) != codes
    else:
        raise ConfigError(f"unknown filter {filter_by!r}: choose likelihood, confident_learning or predicted_neq_given")
    if return_indices_ranked_by is None:
        return issues
    found = np.flatnonzero(issues)
    quality = get_label_quality_scores(codes, probabilities, method=return_indices_ranked_by)
    return found[np.argsort(quality[found], kind="stable")]


def get_label_quality_scores(
    labels: npt.ArrayLike, pred_probs: npt.ArrayLike, *, method: Quality = "self_confidence"
) -> Values:
    """How much the predictions support each label, from 0 to 1; lower is worse.

    ``self_confidence`` is the probability of the given label; ``normalized_margin`` its lead over the best other class.

    >>> get_label_quality_scores([0, 1], [[0.75, 0.25], [0.75, 0.25]], method="normalized_margin").tolist()
    [0.75, 0.25]
    """
    codes, probabilities = check_predictions(labels, pred_probs)
    rows = np.arange(len(codes))
    own: Values = probabilities[rows, codes]
    if method == "self_confidence":
        return own
    if method != "normalized_margin":
        raise ConfigError(f"unknown score {method!r}: choose self_confidence or normalized_margin")
    others = probabilities.copy()
    others[rows, codes] = 0.0
    margin: Values = (own - others.max(axis=1) + 1) / 2
    return margin


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Groups of examples that are the same, or nearly."""

    group: Codes
    """a number for each example, the same for duplicates of each other; −1 for one that has none"""
    exact: Flags
    """whether an example has an exact copy"""
    conflict: Flags
    """whether its group holds different labels: one of them must be wrong"""


def find_duplicates(features: npt.ArrayLike, labels: npt.ArrayLike, *, near: float = 0.99) -> Duplicates:
    """Exact copies, and examples whose cosine to each other (of centred features) is `near` or more.

    Copies of copies share a group. Near duplicates are sought among the five nearest neighbours of each example.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]])
    >>> found = find_duplicates(x, [0, 1, 1, 0])
    >>> found.group.tolist(), found.conflict.tolist()
    ([0, -1, 0, -1], [True, False, True, False])
    """
    codes, _ = check_labels(labels)
    x = check_features(features, len(codes))
    if not 0 < near <= 1:
        raise ConfigError(f"near is {near}: give a cosine above 0, up to 1")
    _, same = np.unique(x, axis=0, return_inverse=True)
    same = same.reshape(-1)
    exact = np.bincount(same)[same] > 1
    centred = x - x.mean(axis=0)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    unit = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    pairs = _copies(same)
    if len(x) > 1:
        neighbour, cosine = nearest(unit, min(5, len(x) - 1), np.random.default_rng(0))
        row, column = np.nonzero(cosine >= near)
        pairs = np.concatenate([pairs, np.column_stack([row, neighbour[row, column]])])
    group = _connected(pairs, len(x))
    members = np.bincount(group)[group] > 1
    lowest, highest = (np.full(len(x), fill) for fill in (len(codes), -1))
    np.minimum.at(lowest, group, codes)
    np.maximum.at(highest, group, codes)
    conflict = members & (lowest[group] != highest[group])
    numbers = np.full(len(x), -1)
    numbers[members] = np.unique(group[members], return_inverse=True)[1]
    return Duplicates(numbers, exact, conflict)


@dataclass(frozen=True)
class Overlap:
    """Two classes that are hard to tell apart: of an example of one, the share that looks like the other."""

    first: int
    second: int
    share: float


def overlapping_classes(labels: npt.ArrayLike, pred_probs: npt.ArrayLike, *, least: float = 0.02) -> list[Overlap]:
    """The pairs of classes that look alike, the worst first.

    `pred_probs` are of the true class, as ``label_evidence`` gives them; so exchanged labels do not look like overlap.
    The share is the mean over both directions; pairs below `least` are left out.
    """
    codes, probabilities = check_predictions(labels, pred_probs)
    fitted = explain([np.log(np.maximum(probabilities, 1e-6))], codes, usual_weight=1.0)
    belief, _ = posterior(probabilities, fitted.transition, codes)
    totals = belief.sum(axis=0)
    looks_like = (belief.T @ probabilities) / np.maximum(totals, 1e-12)[:, None]
    both = (looks_like + looks_like.T) / 2
    first, second = np.nonzero(np.triu(both >= least, k=1))
    order = np.argsort(-both[first, second], kind="stable")
    return [Overlap(int(first[i]), int(second[i]), float(both[first[i], second[i]])) for i in order]


def _copies(same: npt.NDArray[np.intp]) -> Codes:
    """Pairs that tie together all examples with the same number."""
    order = np.argsort(same, kind="stable")
    tied = same[order][1:] == same[order][:-1]
    pairs: Codes = np.column_stack([order[:-1][tied], order[1:][tied]])
    return pairs


def _connected(pairs: Codes, size: int) -> Codes:
    """The component of each example in the graph of these pairs, named by a number."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(pairs), dtype=np.int8), (pairs[:, 0], pairs[:, 1])), shape=(size, size))
    component: Codes = connected_components(graph, directed=False)[1].astype(np.int64)
    return component
