"""How one label, one image or one vector is corrupted: pure functions of arrays and a seed (section 2.1)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from robustda.errors import ConfigError, DataError

__all__ = [
    "BLUR",
    "SCALE",
    "TRANSITIONS",
    "BlurSaltPepper",
    "check_transition",
    "corrupt_image",
    "corrupt_labels",
    "corrupt_vectors",
    "transition_matrix",
]

Seed = int | np.random.SeedSequence
Matrix = npt.NDArray[np.float64]

TRANSITIONS = ("symmetric", "uniform", "pair")

BLUR = 8.0
"""The authors' blur in pixels; it belongs to Office-31's images of about 300 pixels a side."""

SCALE = 3.0
"""In standard deviations; the image recipe moves Office-31's ResNet-50 features by 2.3 to 3.3 of them."""


def transition_matrix(kind: str, n_classes: int, rate: float) -> Matrix:
    """The transition matrix 𝒯 of a named kind of label noise, 𝒯[i, j] = p(given j | true i).

    ``symmetric``: with probability ``rate`` another class, each alike; never the true one.
    ``uniform``: with probability ``rate`` any class, the true one among them.
    ``pair``: with probability ``rate`` the next class, and the first after the last.

    >>> transition_matrix("pair", 3, 0.25)
    array([[0.75, 0.25, 0.  ],
           [0.  , 0.75, 0.25],
           [0.25, 0.  , 0.75]])
    """
    check_rate(rate)
    if n_classes < 2:
        raise ConfigError(f"label noise needs two classes or more, not {n_classes}: give more classes")
    same = np.eye(n_classes)
    if kind == "symmetric":
        return (1 - rate) * same + rate / (n_classes - 1) * (1 - same)
    if kind == "uniform":
        return (1 - rate) * same + rate / n_classes
    if kind == "pair":
        return (1 - rate) * same + rate * np.roll(same, 1, axis=1)
    raise ConfigError(f"unknown label noise {kind!r}: choose {', '.join(TRANSITIONS)}, or give a matrix")


def check_transition(matrix: npt.ArrayLike, n_classes: int) -> Matrix:
    """The given transition matrix 𝒯 as float64, once it is sure to be K × K with rows that sum to one."""
    try:
        checked = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError("the transition matrix is no table of numbers: give K rows of K numbers") from None
    if checked.shape != (n_classes, n_classes):
        shape = "×".join(map(str, checked.shape)) or "a single number"
        raise ConfigError(f"the transition matrix is {shape}: give {n_classes}×{n_classes}, a row for each class")
    if not np.isfinite(checked).all() or (checked < 0).any():
        raise ConfigError("the transition matrix holds negative numbers or NaN: give probabilities")
    off = np.abs(checked.sum(axis=1) - 1)
    if off.max() > 1e-5:
        row = int(off.argmax())
        raise ConfigError(f"row {row} of the transition matrix sums to {checked[row].sum():g}: make every row sum to 1")
    return checked


def corrupt_labels(y: npt.ArrayLike, transition: npt.ArrayLike, seed: Seed) -> npt.NDArray[np.int64]:
    """Given labels ỹ ~ 𝒯[y] for the codes ``y``; −1 (unlabelled) stays −1.

    One number is drawn for each example whatever its label, so an example's draw depends on its place alone.
    """
    codes = np.asarray(y, dtype=np.int64)
    matrix = check_transition(transition, len(np.asarray(transition)))
    if codes.size and (codes.min() < -1 or codes.max() >= len(matrix)):
        raise DataError(f"label codes must lie in −1..{len(matrix) - 1}: give codes into the classes")
    ladder = np.cumsum(matrix, axis=1)
    # The last rung must be exactly 1, or rounding could hand a draw near 1 to a class of probability 0.
    ladder /= ladder[:, -1:]
    draws = np.random.default_rng(seed).random(codes.shape)
    given = codes.copy()
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(matrix) + 1))
    for k, (start, stop) in enumerate(pairwise(starts.tolist())):
        rows = order[start:stop]
        given[rows] = np.searchsorted(ladder[k], draws[rows], side="right")
    return given


def corrupt_image(
    image: npt.NDArray[np.uint8],
    seed: Seed,
    *,
    blur: float = BLUR,
    share: float = 0.5,
    grid: float = 0.04,
    least_cells: int = 3,
) -> npt.NDArray[np.uint8]:
    """Gaussian blur, then coarse salt and pepper, on one uint8 image (H, W, 3) at its native size.

    The blur (sigma ``blur`` pixels, cut off at 4 sigma) reflects the image at its border. A mask of
    Bernoulli(``share``) is drawn on a grid of ``grid`` times the image's size, rounded down but at least
    ``least_cells`` a side, and brought to the image's size by nearest neighbour. Every masked pixel gets its
    own 255·Beta(½, ½), the same in all three channels: mostly near black or white.
    """
    from scipy.ndimage import gaussian_filter

    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise DataError(f"cannot corrupt an image of {image.dtype} {image.shape}: give uint8 (H, W, 3)")
    check_blur(blur)
    rng = np.random.default_rng(seed)
    height, width = image.shape[:2]
    smooth = gaussian_filter(image.astype(np.float32), (blur, blur, 0), mode="reflect", truncate=4.0)
    noisy: npt.NDArray[np.uint8] = np.rint(smooth).astype(np.uint8)
    rows, columns = (max(least_cells, int(grid * side)) for side in (height, width))
    cells = rng.random((rows, columns)) < share
    mask = cells[np.arange(height) * rows // height][:, np.arange(width) * columns // width]
    # sin² of a uniform angle is Beta(½, ½), and ten times as fast to draw.
    pepper_to_salt = np.sin(np.pi / 2 * rng.random(int(mask.sum()))) ** 2
    noisy[mask] = np.rint(255 * pepper_to_salt).astype(np.uint8)[:, None]
    return noisy


@dataclass(frozen=True)
class BlurSaltPepper:
    """``corrupt_image`` as an edit of an image file: done once it is decoded; ``key`` is for the cache."""

    seed: int
    blur: float = BLUR

    @classmethod
    def of(cls, seed: int, identity: str, blur: float = BLUR) -> BlurSaltPepper:
        """The edit of one example: by its id, so that order and neighbours do not change it."""
        name = f"{seed}/{identity}".encode("utf-8", "surrogateescape")
        return cls(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big"), float(blur))

    @property
    def key(self) -> str:
        return f"blur-salt-pepper-1:{self.blur!r}:{self.seed}"

    def __call__(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return corrupt_image(image, self.seed, blur=self.blur)


def corrupt_vectors(x: npt.NDArray[Any], rows: npt.ArrayLike, seed: Seed, *, scale: float = SCALE) -> npt.NDArray[Any]:
    """A copy of ``x`` (m, d) with x̃ = x + e on the chosen ``rows`` (indices, or a mask).

    e is Gaussian with ``scale`` times each feature's standard deviation over all of ``x``; a constant feature
    stays as it is.
    """
    if x.ndim != 2 or not np.issubdtype(x.dtype, np.floating):
        raise DataError(f"cannot corrupt vectors of {x.dtype} {x.shape}: give floats (m, d)")
    if not (np.isfinite(scale) and scale >= 0):
        raise ConfigError(f"scale is {scale}: give a number that is 0 or more")
    picked = np.asarray(rows)
    chosen = np.flatnonzero(picked) if picked.dtype == bool else picked.astype(np.int64)
    noisy = np.array(x)
    if len(chosen):
        noise = np.random.default_rng(seed).standard_normal((len(chosen), x.shape[1]), dtype=np.float32)
        noisy[chosen] += noise * (scale * _spread(x)).astype(np.float32)
    return noisy


def check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ConfigError(f"the noise rate is {rate}: give a share from 0 to 1")


def check_blur(blur: float) -> None:
    if not (np.isfinite(blur) and blur >= 0):
        raise ConfigError(f"blur is {blur}: give a number of pixels that is 0 or more")


def _spread(x: npt.NDArray[Any]) -> Matrix:
    """Standard deviation of each column; a few at a time, since float64 for all would take twice ``x``."""
    blocks = [x[:, c : c + 64].std(axis=0, dtype=np.float64) for c in range(0, x.shape[1], 64)]
    return np.concatenate(blocks)
