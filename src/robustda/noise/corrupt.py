"""Noise on the source domain, Q → Q_n: labels by a transition matrix, features, or both (sections 2.1, 4.1).

A corruption is drawn first, as a ``NoiseRecord``, and then applied; all that is random follows from the seed.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from robustda.data.domain import Domain
from robustda.errors import ConfigError, DataError
from robustda.noise.recipes import (
    BLUR,
    SCALE,
    BlurSaltPepper,
    check_blur,
    check_rate,
    check_transition,
    corrupt_image,
    corrupt_labels,
    corrupt_vectors,
    transition_matrix,
)
from robustda.noise.record import NoiseRecord, label_names

__all__ = [
    "BlurSaltPepper",
    "Corruption",
    "NoiseRecord",
    "check_transition",
    "corrupt",
    "corrupt_image",
    "corrupt_labels",
    "corrupt_vectors",
    "transition_matrix",
]

Kind = Literal["label", "feature", "mixed"]

_LABEL_STREAM, _FEATURE_STREAM = 0, 1


class Corruption(NamedTuple):
    """A noisy domain, and the record that tells what is wrong with it."""

    domain: Domain
    record: NoiseRecord


def corrupt(
    domain: Domain,
    kind: Kind,
    rate: float,
    *,
    seed: int = 0,
    transition: str | npt.ArrayLike = "symmetric",
    blur: float = BLUR,
    scale: float = SCALE,
) -> Corruption:
    """Corrupt labels, features, or both; the given ``domain`` is left as it is.

    ``label``: each label is redrawn from its row of the transition matrix 𝒯 at ``rate`` (p_noise).
    ``feature``: each example's features are corrupted with probability ``rate`` (p_f).
    ``mixed``: both, each with probability ``rate``/2 and independently.

    ``transition`` is "symmetric", "uniform" or "pair"; or a K × K matrix that is used as it is, whatever the
    rate, which then concerns the features alone. ``blur`` is for images, ``scale`` for vectors.

    Labels and features draw from streams of their own: ``mixed`` at .4 has the labels of ``label`` at .2.
    """
    if kind not in ("label", "feature", "mixed"):
        raise ConfigError(f"unknown kind of noise {kind!r}: choose label, feature or mixed")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"the seed is {seed!r}: give a whole number that is 0 or more")
    check_rate(rate)
    check_blur(blur)
    share = rate / 2 if kind == "mixed" else rate
    true_names = given_names = label_names(domain)
    matrix = None
    if kind != "feature":
        if domain.y is None or (domain.y < 0).all():
            raise DataError("the domain has no labels to corrupt: give labels, or corrupt its features")
        n_classes = len(domain.classes)
        if isinstance(transition, str):
            matrix = transition_matrix(transition, n_classes, share)
        else:
            transition = matrix = check_transition(transition, n_classes)
        given = corrupt_labels(domain.y, matrix, _stream(seed, _LABEL_STREAM))
        given_names = label_names(domain.with_labels(given))
    hit = np.zeros(len(domain), dtype=bool)
    if kind != "label":
        hit = np.random.default_rng(_stream(seed, _FEATURE_STREAM)).random(len(domain)) < share
    record = NoiseRecord(
        ids=domain.ids,
        labels=true_names,
        given_labels=given_names,
        corrupted_features=hit,
        kind=kind,
        rate=float(rate),
        seed=int(seed),
        transition="" if matrix is None else transition if isinstance(transition, str) else matrix,
        blur=float(blur),
        scale=float(scale),
    ).remember(domain)
    return Corruption(record.apply(domain), record)


def _stream(seed: int, which: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(which,))
