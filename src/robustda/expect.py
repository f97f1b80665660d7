"""How accurate will it be on the target? An estimate without a single label of it, with an interval; and calibration.

    views = opinions(source, believed, target, 31)                  # three classifiers of different kinds
    expected_accuracy(probabilities, views.values())                # Expected(value=.84, low=.76, high=.92)
    calibrate(probabilities, temperature_for(probabilities, .84))   # as sure as it is right

Classifiers that were built in different ways seldom make the same mistake, so how often a model agrees with others is
close to how often it is right: on Office-31 within 2 or 3 points on average, where confidence is off by 7 even after
its temperature was fitted on the source (`benchmarks/expected_accuracy.py`). Where classes overlap they do make the
same mistakes, and agree on them: that is seen on the source, and plain witnesses are believed more than agreement then
(`overlap.py`). What all of them mistake alike for other reasons nobody can see without labels; the interval allows for
as much as was met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from robustda.errors import ConfigError, DataError
from robustda.noise.checks import check_features, check_labels, check_predictions
from robustda.noise.vectors import unit
from robustda.noise.witnesses import describe

if TYPE_CHECKING:
    import torch

    from robustda.overlap import PlainWords

__all__ = ["Expected", "calibrate", "expected_accuracy", "fit_temperature", "opinions", "temperature_for"]

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Single = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

_UNSEEN, _APART = 0.02, 0.15
"""Standard deviation of what agreement misses, beyond chance among the examples: so much, and this share of what the
views disagree about among themselves. In simulations on Office-31 the interval then held in all cases, and it does on
the embedded digits by their pixels, where the views are bad and agree on half of the examples only."""
_OVERLAPPING = 0.08  # the same of what is expected where classes overlap, which was off by .07 on four kinds of data
_SHARPNESS = 20.0
_ROUNDS = 10


class Expected(NamedTuple):
    """An expected accuracy, and the interval in which it should lie in 95 of 100 cases."""

    value: float
    low: float
    high: float


def expected_accuracy(
    probabilities: npt.ArrayLike,
    views: Iterable[npt.ArrayLike],
    *,
    plain: PlainWords | None = None,
    of_its_kind: bool = True,
    source_probabilities: npt.ArrayLike | None = None,
    source_labels: npt.ArrayLike | None = None,
) -> Expected:
    """The share of target examples that a model should get right, from its (n, K) probabilities on them.

    ``views`` are other classifiers' probabilities, or classes, for the same examples, such as `opinions` has; two or
    more. The one that is most like the model may be of its kind and share its mistakes: it has no say where two others
    are left, unless it is known that none is ``of_its_kind``. ``plain`` is what `plain_words` found: the more classes
    overlap, the more how likely the model's classes are by that counts in place of agreement.
    ``source_probabilities`` are the model's own on trusted source examples that it has not seen, with their
    labels: then the share of target examples above the confidence that its accuracy there corresponds to (average
    thresholded confidence, Garg et al. 2022) has a say, too.

    >>> right = np.eye(3)[np.arange(90) % 3]
    >>> others = [np.where(np.arange(90)[:, None] % 10 == k, right[:, ::-1], right) for k in (0, 5)]
    >>> round(expected_accuracy(right, others).value, 2)
    0.93
    """
    own, sure = _classes(probabilities, "the model")
    if sure is None:
        raise DataError("the model gave classes: give its probabilities, one row for each example")
    others = [_classes(view, "a view")[0] for view in _same_length(views, len(own))]
    agreement = sorted(float((own == other).mean()) for other in others)
    if len(agreement) < 2:
        raise ConfigError("an accuracy is expected by comparing with two other classifiers or more: give more views")
    voices = agreement[:-1] if of_its_kind and len(agreement) > 2 else agreement
    if source_probabilities is not None and source_labels is not None:
        codes, known = check_predictions(source_labels, source_probabilities)
        accuracy = float((known.argmax(axis=1) == codes).mean())
        threshold = np.quantile(known.max(axis=1), 1 - accuracy)
        voices.append(float((sure > threshold).mean()))
    elif source_probabilities is not None or source_labels is not None:
        raise ConfigError("probabilities on the source count with their labels only: give both, or neither")
    overlap = 0.0
    if plain is not None:
        _same_length([plain.away], len(own))
        overlap, likely = plain.overlap, plain.likely(own)
        voices = [(1 - overlap) * voice + overlap * likely for voice in voices]
    # Thresholded confidence can be off by far where the source says little about the target; the median is not.
    value = float(np.median(voices))
    apart = 1 - float(np.mean([(one == other).mean() for one, other in combinations(others, 2)]))
    # Two right and two wrong are added, as Agresti and Coull do: four examples that are all right prove little.
    size, share = len(own) + 4, (value * len(own) + 2) / (len(own) + 4)
    unseen = (_UNSEEN + _APART * apart) ** 2 + (_OVERLAPPING * overlap) ** 2
    width = 1.96 * float(np.sqrt(share * (1 - share) / size + unseen))
    return Expected(value, max(0.0, min(value - width, *voices)), min(1.0, max(value + width, *voices)))


def opinions(
    source: npt.ArrayLike,
    labels: npt.ArrayLike,
    target: npt.ArrayLike,
    n_classes: int | None = None,
    *,
    trusted: npt.ArrayLike | None = None,
    seed: int = 0,
    known: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, Values]:
    """Probabilities on the target by three classifiers that were built in different ways, on the same features.

    ``linear``: a linear head on features from which each domain's mean was subtracted; ``prototypes``: class means of
    the source, moved to the target by k-means; ``concord``: one of the ten members of that method. ``labels`` are the
    source's as far as they are believed, ``trusted`` (a mask) the examples that are learned from. ``known`` is what
    concord's members found of the same features, if they were asked before.
    """
    codes, size = check_labels(labels, n_classes)
    x = unit(check_features(source, len(codes)))
    z = unit(check_features(target, len(np.asarray(target))))
    if x.shape[1] != z.shape[1]:
        raise DataError(f"the source has {x.shape[1]} features and the target {z.shape[1]}: make both in the same way")
    sound = np.ones(len(codes), dtype=bool) if trusted is None else np.asarray(trusted)
    if sound.shape != codes.shape or sound.dtype != bool or not sound.any():
        raise DataError(f"`trusted` is {sound.dtype} {sound.shape}: give {len(codes)} truth values, some of them true")
    concord = _concord(x, codes, sound, z, size, seed, known)
    for own in (x, z):
        own -= own.mean(axis=0)
        unit(own, out=own)
    return {
        "concord": concord,
        "prototypes": _prototypes(x[sound], codes[sound], z, size),
        "linear": _linear(x, codes, sound, z, size, seed),
    }


def fit_temperature(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The T at which probabilities ∝ p^(1/T) make the labels likeliest: above 1 for a model that is too sure.

    The examples must not have been learned from, and their labels be right: trusted source examples that were held out.
    """
    codes, given = check_predictions(labels, probabilities)
    rows = np.arange(len(codes))

    def loss(temperature: float) -> float:
        return -float(np.log(np.maximum(_tempered(given, temperature)[rows, codes], 1e-12)).mean())

    return _least(loss)


def temperature_for(probabilities: npt.ArrayLike, accuracy: float) -> float:
    """The T at which the model is as sure on average as it is expected to be right: calibration without labels."""
    given = _probabilities(probabilities)
    if not 0 <= accuracy <= 1:
        raise ConfigError(f"the accuracy is {accuracy}: give a share from 0 to 1")
    return _least(lambda temperature: abs(float(_tempered(given, temperature).max(axis=1).mean()) - accuracy))


def calibrate(probabilities: npt.ArrayLike, temperature: float) -> Values:
    """Probabilities ∝ p^(1/T): the same order, another sureness.

    >>> calibrate([[0.9, 0.1]], 2.0).round(2).tolist()
    [[0.75, 0.25]]
    """
    if not (np.isfinite(temperature) and temperature > 0):
        raise ConfigError(f"the temperature is {temperature}: give a number above 0, such as fit_temperature finds")
    return _tempered(_probabilities(probabilities), temperature)


def _concord(
    x: Single, codes: Codes, sound: Flags, z: Single, size: int, seed: int, known: Mapping[str, torch.Tensor] | None
) -> Values:
    import torch

    from robustda.methods.concord import Concord

    method = Concord(seed=seed, members=1, backbone="identity")
    if known and known["components"].shape != (x.shape[1], min(method.components, x.shape[1])):
        known = None  # they were asked to look at more, or at less
    believed = torch.nn.functional.one_hot(torch.from_numpy(codes), size).double() * torch.from_numpy(sound)[:, None]
    network = method.network((x.shape[1],), size).requires_grad_(False)
    network.settle(method.opinions(torch.from_numpy(x), believed, torch.from_numpy(z), known=known))
    with torch.no_grad():
        logits = network.f(network.bottleneck(torch.from_numpy(z)))
    return torch.softmax(logits.double(), dim=1).numpy()


def _prototypes(x: Single, codes: Codes, z: Single, size: int) -> Values:
    import torch

    from robustda.methods.prototypes import class_means

    there = torch.from_numpy(z)
    means = class_means(torch.from_numpy(x), torch.from_numpy(codes), torch.zeros(size, x.shape[1]))
    for _ in range(_ROUNDS):
        means = class_means(there, (there @ means.T).argmax(dim=1), means)
    return torch.softmax(_SHARPNESS * (there @ means.T).double(), dim=1).numpy()


def _linear(x: Single, codes: Codes, known: Flags, z: Single, size: int, seed: int) -> Values:
    from robustda.theory import fit_head

    both = describe(np.concatenate([x, z]), seed)
    scores = fit_head(both[: len(x)][known], codes[known], size).scores(both[len(x) :]).astype(np.float64)
    return _shares(scores)


def _tempered(given: Values, temperature: float) -> Values:
    return _shares(np.log(np.maximum(given, 1e-300)) / temperature)


def _shares(logits: Values) -> Values:
    shares: Values = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _least(loss: Callable[[float], float]) -> float:
    """The temperature from 1/50 to 50 with the least loss: a grid, then two finer ones around the best."""
    low, high = np.log(1 / 50), np.log(50)
    for _ in range(3):
        grid = np.linspace(low, high, 25)
        place = int(np.argmin([loss(float(np.exp(value))) for value in grid]))
        low, high = grid[max(0, place - 1)], grid[min(24, place + 1)]
    return float(np.exp(grid[place]))


def _classes(view: npt.ArrayLike, name: str) -> tuple[Codes, Values | None]:
    """The classes, and how sure of them, which classes alone do not tell."""
    given = np.asarray(view)
    if given.ndim == 1:
        return check_labels(given)[0], None
    try:
        checked = _probabilities(given)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    return checked.argmax(axis=1), checked.max(axis=1)


def _probabilities(given: npt.ArrayLike) -> Values:
    rows = np.asarray(given)
    return check_predictions(np.zeros(len(rows) if rows.ndim else 0, dtype=np.int64), rows)[1]


def _same_length(views: Iterable[npt.ArrayLike], size: int) -> list[npt.NDArray[np.generic]]:
    found = [np.asarray(view) for view in views]
    for view in found:
        if len(view) != size:
            raise DataError(f"a view has {len(view)} examples and the model {size}: predict the same ones with both")
    return found
