"""What ``noise_rate="auto"`` goes by: the audit's noise rate for each class, and the labels that it doubts.

    found = estimate_rates(features, labels, n_classes)
    found.rates       # r_k, the share of wrong labels among the examples given label k
    found.doubted     # who is more likely labelled wrong than right

There is one estimate in this library, that of `transition.py` from the evidence of `evidence.py`; this is the short way
to it, and the way that a million examples can take. Beyond 30,000 a sample stands for all: it knows the overall rate to
within .003. The others are then judged by what was believed of the sample, a block at a time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from robustda.errors import DataError, RobustDAWarning
from robustda.noise.checks import check_labels
from robustda.noise.corruption import corruption_of
from robustda.noise.evidence import LabelEvidence, enough_left, label_evidence
from robustda.noise.likelihood import posterior
from robustda.noise.strangers import Judge, sample_rows
from robustda.noise.transition import noise_of
from robustda.noise.vectors import Lookup

__all__ = ["Estimated", "EstimatorName", "estimate_rates"]

EstimatorName = Literal["combined", "confident", "likelihood", "anchor", "mixture"]

_FEWEST = 12
_BLOCK = 8192  # examples judged at a time


@dataclass(frozen=True, eq=False)
class Estimated:
    """How noisy the labels of m examples of K classes are."""

    rates: npt.NDArray[np.float64]
    """(K,) shares of wrong labels among the examples given each label"""
    doubted: npt.NDArray[np.bool_]
    """(m,) labels that are more likely wrong than right"""


def estimate_rates(
    features: Lookup,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    inputs: npt.NDArray[np.generic] | None = None,
    corrupted: npt.NDArray[np.bool_] | None = None,
    columns: npt.NDArray[np.generic] | None = None,
    estimator: EstimatorName = "combined",
    most: int = 30_000,
    seed: int = 0,
) -> Estimated:
    """Noise rates of the classes, and whose label is in doubt.

    ``inputs`` are what the features were made of: images in which blur and noise can be seen, or the vectors
    themselves. Examples that stand out there, or are known to be ``corrupted``, are judged among their own kind, and
    the rates are those of the others. ``columns`` are the rows of a table from which features were made: trees judge
    by them, too.
    ``most`` is the size of the sample that stands for all where there are more examples.

    >>> rng = np.random.default_rng(0)
    >>> true = np.arange(300) % 3
    >>> given = np.where(np.arange(300) < 60, (true + 1) % 3, true)
    >>> found = estimate_rates((4 * np.eye(3)[true] + rng.normal(size=(300, 3))).astype(np.float32), given, 3)
    >>> round(float(found.rates.mean()), 1)
    0.2
    """
    codes, _ = check_labels(labels, n_classes)
    if len(codes) < _FEWEST:
        raise DataError(
            f"the noise rate cannot be estimated from {len(codes)} examples: give noise_rate a number, or at least "
            f"{_FEWEST} examples"
        )
    none = Estimated(np.zeros(n_classes), np.zeros(len(codes), dtype=bool))
    if len(np.unique(codes)) < 2:  # with one class only, no label can be wrong
        return none
    if np.bincount(codes).max() == 1:
        message = (
            "every class has one example only, so the share of wrong labels is taken to be 0: give noise_rate a number"
        )
        warnings.warn(message, RobustDAWarning, stacklevel=2)
        return none
    alone: dict[str, Any] = {"together": False, "seed": seed}  # rates are the witnesses' own
    if len(codes) <= most:
        odd = _corrupted(inputs, corrupted, codes)
        evidence = label_evidence(np.asarray(features), codes, n_classes, corrupted=odd, columns=columns, **alone)
        return Estimated(_rates(evidence, estimator, seed), evidence.issues)
    rows = sample_rows(codes, most, np.random.default_rng(seed))
    some = np.asarray(features[rows], dtype=np.float32)
    odd = _corrupted(inputs, corrupted, codes[rows], rows)
    table = None if columns is None else columns[rows]
    evidence = label_evidence(some, codes[rows], n_classes, corrupted=odd, columns=table, **alone)
    doubted = np.zeros(len(codes), dtype=bool)
    judge = Judge(some, evidence, seed)
    for start in range(0, len(codes), _BLOCK):
        block = slice(start, start + _BLOCK)
        seen = np.asarray(features[block], dtype=np.float32)
        probabilities, strange = judge(seen, None if columns is None else columns[block])
        belief, _ = posterior(probabilities, evidence.transition, codes[block])
        doubted[block] = (belief[np.arange(len(belief)), codes[block]] < 0.5) & ~strange
    doubted[rows] = evidence.issues
    return Estimated(_rates(evidence, estimator, seed), doubted)


def _rates(evidence: LabelEvidence, estimator: EstimatorName, seed: int) -> npt.NDArray[np.float64]:
    report = noise_of(evidence, resamples=2, seed=seed)
    return (report.combined if estimator == "combined" else report.estimates[estimator]).rates


def _corrupted(
    inputs: npt.NDArray[np.generic] | None,
    known: npt.NDArray[np.bool_] | None,
    codes: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.bool_] | None:
    if known is not None:
        return enough_left(known if rows is None else known[rows], codes)
    return None if inputs is None else enough_left(corruption_of(inputs, rows).corrupted, codes)
