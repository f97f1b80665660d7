"""Whose features are corrupted? A blurred or speckled image, or a vector that lies off the others.

A corrupted example with a right label should be kept (the paper's point), so this is told apart from wrong labels by
looking at the features alone; labels have no part in it. Scores go from 0 to 1, and above ½ an example stands out:

    found = image_corruption(images)             # (m, H, W, 3) bytes, all of one size
    evidence = label_evidence(features, labels, corrupted=found.corrupted)

All is relative to the data set: what is blurred among photographs is usual among sketches.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robustda.errors import DataError

__all__ = ["CorruptionScores", "corruption_of", "image_corruption", "marked", "vector_corruption"]

Values = npt.NDArray[np.float64]
Single = npt.NDArray[np.float32]

_FAR = {"noise": 5.0, "blur": 3.0, "far": 4.0, "odd": 4.0}
"""Robust standard deviations at which the score is ½. Of Office-31's clean images 1 to 3 % lie so far out."""

_NATURAL = (-2.5, -0.4)
"""Log ratio of the finest detail's energy to the next coarser one's in photographs; white noise has about +0.5."""

_ENOUGH = 100  # pixels a side; below, there is too little fine detail to tell blur and noise from drawing
_BLOCK = 64  # images at a time, so that floats for all of them are never in memory


@dataclass(frozen=True, eq=False)
class CorruptionScores:
    """How much each example stands out, and in which way."""

    score: Values
    """from 0 to 1; above ½ it stands out"""
    kind: npt.NDArray[np.str_]
    """what stands out most: "noise" or "blur" for images, "far" or "odd" for vectors, "marked" where it came with
    the data; "" where nothing does"""

    @property
    def corrupted(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self.score > 0.5
        return found


def corruption_of(x: npt.NDArray[np.generic], rows: npt.NDArray[np.int64] | None = None) -> CorruptionScores:
    """Scores of images or vectors, of these rows if they are given; images of under 100 pixels a side all get 0."""
    if x.ndim == 2:
        return vector_corruption(x if rows is None else x[rows])
    if x.shape[1] >= _ENOUGH:
        return image_corruption(x, rows)
    size = len(x) if rows is None else len(rows)
    return CorruptionScores(np.zeros(size), np.full(size, "", dtype=np.str_))


def marked(corrupted: npt.NDArray[np.bool_]) -> CorruptionScores:
    """The scores of examples of which it is known whether they are corrupted."""
    return CorruptionScores(corrupted.astype(np.float64), np.where(corrupted, "marked", ""))


def image_corruption(images: npt.ArrayLike, rows: npt.NDArray[np.int64] | None = None) -> CorruptionScores:
    """Score decoded images (m, H, W, 3) or (m, H, W), bytes, by three measures of their finest detail.

    Detail is what a Laplacian leaves. In photographs its energy falls steadily from coarse to fine. Where it falls
    too little from half to full size, or where many pixels stand out from all four neighbours, there is noise (salt
    and pepper or any other); where it is small beside the edges that a quarter of the size still shows, blur. Resizing
    averages noise away, so give 200 pixels a side or more: at 64 the paper's recipe is hardly seen any more.

    >>> rng = np.random.default_rng(0)
    >>> smooth = np.cumsum(np.cumsum(rng.normal(size=(30, 64, 64)), axis=1), axis=2)
    >>> images = (smooth - smooth.min()) / np.ptp(smooth) * 255
    >>> images[3] = rng.integers(0, 256, size=(64, 64))
    >>> found = image_corruption(images.astype(np.uint8))
    >>> int(found.score.argmax()), str(found.kind[3])
    (3, 'noise')
    """
    pixels = np.asarray(images)
    if pixels.ndim not in (3, 4) or pixels.dtype != np.uint8:
        raise DataError(f"the images are {pixels.dtype} {pixels.shape}: give bytes (uint8) of shape (m, H, W, 3)")
    if min(pixels.shape[1:3]) < 16 or not len(pixels):
        raise DataError(f"images of shape {pixels.shape} show no detail to judge: give 16 pixels a side or more")
    size = len(pixels) if rows is None else len(rows)
    chosen = (slice(start, start + _BLOCK) for start in range(0, size, _BLOCK))
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:  # numpy lets other threads work meanwhile
        blocks = list(pool.map(lambda block: _detail(pixels[block] if rows is None else pixels[rows[block]]), chosen))
    fine, sharp, speckled = np.concatenate(blocks).T
    # Where most images are corrupted, the median is theirs; photographs are known to look otherwise.
    natural = (fine > _NATURAL[0]) & (fine < _NATURAL[1])
    usual = natural if natural.mean() > 0.1 else np.ones(len(fine), dtype=bool)
    noise = np.maximum(_standard(fine, usual), _standard(speckled, usual))
    return _scores({"noise": noise, "blur": -_standard(sharp, usual)})


def vector_corruption(features: npt.ArrayLike) -> CorruptionScores:
    """Score vectors (m, d) by how far they lie from the middle, and by how little the main directions explain them.

    Both are compared with the usual vector by median and median deviation, so fewer than half of the vectors may be
    corrupted. Additive noise of three standard deviations is always seen. What a network makes of corrupted images is
    not: such features lie close together, at a usual distance from the middle. On Office-31 they rank high among the
    others where they are few, but none is called corrupted; where there are images, use `image_corruption`.
    """
    try:
        x = np.asarray(features, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError("the features are no table of numbers: give a row for each example") from None
    if x.ndim != 2 or not x.size:
        raise DataError(f"the features have shape {x.shape}: give (examples, features)")
    if not np.isfinite(x).all():
        row = int((~np.isfinite(x).all(axis=1)).argmax())
        raise DataError(f"row {row} of the features holds NaN or infinity: leave it out or fill the gaps")
    x = np.subtract(x, np.median(x, axis=0), dtype=np.float32)
    spread = x.std(axis=0)
    scale: Single = np.where(spread > 0, spread, 1).astype(np.float32)
    # A network's features share one scale, which tells something; the columns of a table have each their own.
    far = np.maximum(_beyond(_log_length(x)), _beyond(_log_length(x / scale)))
    rest = _unexplained(x, np.flatnonzero(far <= np.median(far)))
    return _scores({"far": far, "odd": np.zeros(len(x)) if rest is None else _beyond(rest)})


def _detail(pixels: npt.NDArray[np.uint8]) -> Values:
    """Log energy ratios of full to half size and of half to quarter size, and the share of isolated pixels."""
    gray: Single = pixels.astype(np.float32) / np.float32(255)
    if gray.ndim == 4:
        gray = gray.mean(axis=3)
    inner = gray[:, 1:-1, 1:-1]
    beside = (gray[:, :-2, 1:-1], gray[:, 2:, 1:-1], gray[:, 1:-1, :-2], gray[:, 1:-1, 2:])
    highest = np.maximum(np.maximum(beside[0], beside[1]), np.maximum(beside[2], beside[3]))
    lowest = np.minimum(np.minimum(beside[0], beside[1]), np.minimum(beside[2], beside[3]))
    isolated = ((inner > highest + 0.1) | (inner < lowest - 0.1)).mean(axis=(1, 2))
    half = _halved(gray)
    quarter = _halved(half)
    edges = (np.diff(quarter, axis=1) ** 2).mean(axis=(1, 2)) + (np.diff(quarter, axis=2) ** 2).mean(axis=(1, 2))
    energy = _laplacian_energy(gray)
    return np.column_stack(
        [energy - _laplacian_energy(half), energy - np.log(edges + 1e-4), np.log(isolated + 1e-3)]
    ).astype(np.float64)


def _laplacian_energy(gray: Single) -> Single:
    laplacian = 4 * gray[:, 1:-1, 1:-1]
    laplacian -= gray[:, :-2, 1:-1] + gray[:, 2:, 1:-1] + gray[:, 1:-1, :-2] + gray[:, 1:-1, 2:]
    # Bytes are rounded, which is noise of about this energy; without it a blank image would have no finite one.
    energy: Single = np.log((laplacian**2).mean(axis=(1, 2)) + 20 / (36 * 255**2))
    return energy


def _halved(gray: Single) -> Single:
    height, width = gray.shape[1] // 2 * 2, gray.shape[2] // 2 * 2
    four = gray[:, :height, :width].reshape(len(gray), height // 2, 2, width // 2, 2)
    mean: Single = four.mean(axis=(2, 4))
    return mean


def _log_length(x: Single) -> Values:
    length: Values = np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64))
    return np.log(length + 1e-12)


def _unexplained(x: Single, central: npt.NDArray[np.intp]) -> Values | None:
    """Log of the share of each vector that lies outside the main directions of the central ones; None if all lie in."""
    width = min(x.shape[1], len(central)) // 4
    if width < 1:
        return None
    # A thousand vectors and 64 directions are enough to know the main ones.
    some = x[central[:: max(1, len(central) // 1000)]]
    directions = np.linalg.svd(some, full_matrices=False)[2][: min(64, width)]
    inside = x @ directions.T
    total = np.einsum("ij,ij->i", x, x, dtype=np.float64)
    rest: Values = np.maximum(total - np.einsum("ij,ij->i", inside, inside, dtype=np.float64), 0)
    share: Values = np.log(np.divide(rest, total, out=np.zeros(len(x)), where=total > 0) + 1e-6)
    return share


def _beyond(values: Values) -> Values:
    """Robust standard deviations above the usual; where the values fall in two parts, the lower one is the usual."""
    cut = float(np.median(values))
    for _ in range(20):
        low, high = values[values <= cut], values[values > cut]
        if not len(high):
            break
        cut = float(low.mean() + high.mean()) / 2
    usual = values <= cut
    # The larger part is the usual one; corrupted examples may well resemble each other and lie below the others.
    apart = 0.5 < usual.mean() < 1
    within = float(np.sqrt((values[usual].var() + values[~usual].var()) / 2)) if apart else 0.0
    # Two halves of a normal distribution have their means 2.6 of such deviations apart.
    two = apart and values[~usual].mean() - values[usual].mean() > 4 * within
    return _standard(values, usual if two else np.ones(len(values), dtype=bool))


def _standard(values: Values, usual: npt.NDArray[np.bool_]) -> Values:
    """Robust standard deviations above the median of the usual ones; a width of nothing is taken as a tenth."""
    middle = np.median(values[usual])
    width = 1.4826 * np.median(np.abs(values[usual] - middle))
    standard: Values = (values - middle) / max(float(width), 0.1)
    return standard


def _scores(measures: dict[str, Values]) -> CorruptionScores:
    names = np.array(list(measures))
    stack = np.array([np.maximum(values, 0) / _FAR[name] for name, values in measures.items()])
    most = stack.max(axis=0)
    score = most / (most + 1)
    kind = np.where(score > 0.5, names[stack.argmax(axis=0)], "")
    return CorruptionScores(score, kind.astype(np.str_))
