"""Examples on their device, and the order in which training sees them.

The order, and all other randomness, is a pure function of (seed, phase, step): there is no sampler state to lose, and
a resumed run draws the very batches that it would have drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from robustda.data import augment as aug
from robustda.data.augment import Augmentation
from robustda.data.domain import Domain

__all__ = ["Inputs", "Order", "derive_seed"]


class Inputs:
    """The inputs of a domain, ready to be drawn by row number.

    They live on the device as they are (float32 vectors, or images as bytes) when they take up no more than half of its
    free memory; otherwise each batch is read from the memory map and sent over. `resident` tells which.
    """

    def __init__(
        self,
        domain: Domain,
        device: torch.device,
        *,
        augmentation: Augmentation = "none",
        crop: int | None = None,
    ) -> None:
        if not isinstance(domain.x, np.ndarray):
            raise TypeError("decode the images first: domain.decoded(size)")
        self.images = domain.kind == "images"
        self.augmentation: Augmentation = augmentation if self.images else "none"
        self.crop = crop or (domain.x.shape[1] if self.images else 0)
        self.device = device
        self.size = len(domain)
        self._array = domain.x
        self.resident = _fits(domain.x.nbytes, device)
        self._tensor = _as_tensor(domain.x).to(device) if self.resident else None

    def __len__(self) -> int:
        return self.size

    @property
    def example_shape(self) -> tuple[int, ...]:
        """The shape of one example as the network is given it: (d,) or (crop, crop, 3)."""
        return (self.crop, self.crop, 3) if self.images else tuple(self._array.shape[1:])

    @property
    def vectors(self) -> np.ndarray:
        """The inputs of all rows as they were given, in the host's memory."""
        return self._array

    def train(self, rows: Tensor) -> Tensor:
        """The inputs of these rows, augmented."""
        return self.augmented(self.gather(rows))

    def augmented(self, batch: Tensor) -> Tensor:
        """What was gathered as the network is given it, each time another view of it."""
        if not self.images:
            return batch
        if self.augmentation == "photo":
            return aug.photo(aug.to_float(batch), self.crop)
        return aug.shift(aug.to_float(batch)) if self.augmentation == "shift" else self._centre(batch)

    def test(self, rows: Tensor) -> Tensor:
        """The inputs of these rows as they are, cut to the centre."""
        batch = self.gather(rows)
        return self._centre(batch) if self.images else batch

    def in_order(self, batch_size: int, rows: Tensor | None = None) -> Iterator[Tensor]:
        """Every input once, in order, unaugmented; or those of these rows."""
        chosen = torch.arange(self.size, device=self.device) if rows is None else rows.to(self.device)
        for part in torch.split(chosen, batch_size):
            yield self.test(part)

    def spread(self, count: int) -> Tensor:
        """Up to so many rows, spread evenly over all."""
        return torch.linspace(0, self.size - 1, min(count, self.size), dtype=torch.float64).round().long()

    def gather(self, rows: Tensor) -> Tensor:
        """The inputs of these rows as they are kept: vectors, or images as bytes (B, H, W, 3)."""
        if self._tensor is not None:
            return self._tensor[rows]
        return _as_tensor(self._array[rows.cpu().numpy()]).to(self.device, non_blocking=True)

    def _centre(self, batch: Tensor) -> Tensor:
        return aug.to_float(aug.centre_crop(batch, self.crop))


class Order:
    """An endless stream of shuffled epochs over `rows`, cut into batches of one size.

    A batch may hold the end of one epoch and the start of the next, so every batch is full whatever the number of
    examples (even fewer than a batch), and every example is seen equally often.
    """

    _CHUNK = 256  # batches sent to the device at a time

    def __init__(self, rows: Tensor, batch_size: int, device: torch.device, *seed: int | str) -> None:
        self._rows = rows.cpu()
        self._batch_size = batch_size
        self._device = device
        self._seed = seed
        self._epoch: tuple[int, Tensor] = (-1, rows)
        self._chunk: tuple[int, Tensor] = (-1, rows)

    def batch(self, step: int) -> Tensor:
        """Row numbers of batch `step`, on the device."""
        number, position = divmod(step, self._CHUNK)
        if self._chunk[0] != number:
            self._chunk = (number, self._make_chunk(number).to(self._device))
        return self._chunk[1][position]

    def _make_chunk(self, number: int) -> Tensor:
        size, total = len(self._rows), self._CHUNK * self._batch_size
        start = number * total
        pieces: list[Tensor] = []
        while total > 0:
            epoch, offset = divmod(start, size)
            piece = self._shuffled(epoch)[offset : offset + total]
            pieces.append(piece)
            start, total = start + len(piece), total - len(piece)
        return torch.cat(pieces).view(self._CHUNK, self._batch_size)

    def _shuffled(self, epoch: int) -> Tensor:
        if self._epoch[0] != epoch:
            generator = torch.Generator().manual_seed(derive_seed(*self._seed, "epoch", epoch))
            self._epoch = (epoch, self._rows[torch.randperm(len(self._rows), generator=generator)])
        return self._epoch[1]


def derive_seed(*parts: int | str) -> int:
    """A seed made of its parts: the same parts, the same seed, on every machine."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _fits(n_bytes: int, device: torch.device) -> bool:
    if device.type != "cuda":
        return True  # on the CPU the memory map itself serves as the tensor, and the system pages it
    free, _ = torch.cuda.mem_get_info(device)
    return n_bytes <= free // 2


def _as_tensor(array: np.ndarray) -> Tensor:
    if not array.flags.writeable:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # read-only maps are never written to
            return torch.from_numpy(np.asarray(array))
    return torch.from_numpy(array)
