"""Rows of a table as a backbone sees them: columns on one scale, and rows alike that are near each other.

A pretrained backbone's features may be compared as they are, by their angle. The columns of a table may not: each has a
unit and a zero of its own, a few of them decide all lengths, and what tells two classes apart may be no angle at all.
So each column is standardised by what both domains show of it, and each row is described by cosines and sines of random
mixtures of the columns: their product is a Gaussian kernel of the distance between two rows (Rahimi and Recht, Random
Features for Large-Scale Kernel Machines, NIPS 2007), they all have one length, and what is linear in them is curved in
the columns.
"""

from __future__ import annotations

import contextlib
import copy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robustda.nets import Backbone, Identity

__all__ = ["Described", "Rows", "Table", "columns_of", "look_at_columns", "main_columns", "rows_of"]

_DIRECTIONS = 256  # random mixtures: the more, the nearer to the kernel; classes of a table are told apart by few
_REACH = (0.5, 1.0)  # of the kernel, in terms of the median distance: half of the mixtures look closely
_OUTLIER = 5.0  # standard deviations beyond which a value is no further away
_ROUNDING = 1e-7  # of a value: what varies less than that varies by the last digit of float32, and says nothing
_FEW, _NEARLY_ALL = 0.02, 0.9  # of the columns, of their variance: a backbone's are not so unlike each other
_ROWS, _PAIRS = 20_000, 2_000  # that are looked at


class Table(Backbone):
    """Cosines and sines of random mixtures of standardised columns. `look_at_columns` finds out all it needs."""

    fixed = True

    middle: Tensor
    scale: Tensor
    directions: Tensor

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.out_features = 2 * _DIRECTIONS
        self.register_buffer("middle", torch.zeros(in_features))
        self.register_buffer("scale", torch.ones(in_features))
        self.register_buffer("directions", torch.zeros(in_features, _DIRECTIONS))

    @classmethod
    def of(cls, source: np.ndarray, target: np.ndarray, seed: int = 0) -> Table:
        """As these two domains need it."""
        table = cls(source.shape[1])
        table.load_state_dict(look_at_columns(source, target, seed))
        return table

    def forward(self, x: Tensor) -> Tensor:
        kind = x.device.type
        # Angles of several turns are nothing for bfloat16, which a GPU's precision would make of this product.
        exactly = torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else contextlib.nullcontext()
        with exactly:
            mixed = ((x - self.middle) * self.scale).clamp(-_OUTLIER, _OUTLIER) @ self.directions
            return torch.cat([mixed.cos(), mixed.sin()], dim=1)


class Rows:
    """The rows of an array as a backbone describes them, made when they are asked for: there may be a million."""

    def __init__(self, backbone: Backbone, array: np.ndarray) -> None:
        self.backbone, self.array = copy.deepcopy(backbone).cpu().eval(), array
        self.shape = (len(array), backbone.out_features)

    def __len__(self) -> int:
        return len(self.array)

    @torch.no_grad()
    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        chosen = torch.from_numpy(np.array(self.array[rows], dtype=np.float32))
        described: np.ndarray = self.backbone(chosen).numpy()
        return described

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or np.float32, copy=False)


Described = np.ndarray | Rows


def rows_of(backbone: Backbone, array: np.ndarray) -> Described:
    """What a fixed backbone makes of vectors: they themselves, where it leaves them as they are."""
    return array if isinstance(backbone, Identity) else Rows(backbone, array)


def columns_of(described: Described) -> np.ndarray | None:
    """The rows of the table that these were made of, if they were."""
    return described.array if isinstance(described, Rows) and isinstance(described.backbone, Table) else None


def look_at_columns(source: np.ndarray, target: np.ndarray, seed: int = 0) -> dict[str, Tensor]:
    """The state of a `Table` for these domains. For middle and scale each counts half, however large it is."""
    rng = np.random.default_rng(seed)
    rows = [_some(x) for x in (source, target)]
    middle = sum(x.mean(axis=0) for x in rows) / 2
    spread = np.sqrt(sum(((x - middle) ** 2).mean(axis=0) for x in rows) / 2)
    # A column that never changes says nothing, and what is left of rounding should not become something.
    scale = np.divide(1, spread, out=np.zeros_like(spread), where=spread > _ROUNDING * np.abs(middle) + 1e-30)
    both = np.concatenate([((x - middle) * scale).clip(-_OUTLIER, _OUTLIER) for x in rows])
    first, second = rng.integers(0, len(both), (2, _PAIRS))
    distance = float(np.median(np.linalg.norm(both[first] - both[second], axis=1))) or 1.0
    directions = rng.standard_normal((source.shape[1], _DIRECTIONS)) / distance
    directions /= np.repeat(_REACH, _DIRECTIONS // len(_REACH))
    found = {"middle": middle, "scale": scale, "directions": directions}
    return {name: torch.from_numpy(value).float() for name, value in found.items()}


def main_columns(x: np.ndarray) -> tuple[int, float]:
    """How many columns have nearly all of the variance, and how much of it; 0 where they are more than a few.

    >>> x = np.random.default_rng(0).normal(size=(100, 200))
    >>> main_columns(x)[0], main_columns(x * np.where(np.arange(200) < 2, 1000, 1))[0]
    (0, 2)
    """
    variance = np.sort(_some(x, _PAIRS).var(axis=0))[::-1]
    shares = np.cumsum(variance) / max(float(variance.sum()), 1e-300)
    few = int(np.searchsorted(shares, _NEARLY_ALL)) + 1
    return (few, float(shares[few - 1])) if few <= _FEW * len(variance) else (0, 0.0)


def _some(x: np.ndarray, most: int = _ROWS) -> np.ndarray:
    """All rows in double precision; of many, some of them, spread evenly."""
    rows = slice(None) if len(x) <= most else np.arange(most) * len(x) // most
    return np.asarray(x[rows], dtype=np.float64)
