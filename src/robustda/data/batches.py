"""Examples on their device, and the order in which training sees them.

The order, and all other randomness, is a pure function of (seed, phase, step): there is no sampler state to lose, and
a resumed run draws the very batches that it would have drawn.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from robustda.data import augment as aug
from robustda.data.augment import Augmentation
from robustda.data.domain import Domain

__all__ = ["Inputs", "Order", "Stream", "Views", "derive_seed"]

_CHUNK = 256  # batches of row numbers that are sent to the device at a time
_VIEWS_CHUNK = 64  # batches of views that are drawn at a time
_SMALL = 1 << 15  # bytes of an example, below which what the system reads around it on the disk is mostly of others
_IN_ORDER, _AT_RANDOM = getattr(mmap, "MADV_NORMAL", None), getattr(mmap, "MADV_RANDOM", None)


class Inputs:
    """The inputs of a domain, ready to be drawn by row number.

    They live on the device as they are (float32 vectors, or images as bytes) when they take up no more than half of its
    free memory; otherwise they are read from the memory map when they are needed. `resident` tells which, and can be
    given to have it otherwise.
    """

    def __init__(
        self,
        domain: Domain,
        device: torch.device,
        *,
        augmentation: Augmentation = "none",
        crop: int | None = None,
        resident: bool | None = None,
    ) -> None:
        if not isinstance(domain.x, np.ndarray):
            raise TypeError("decode the images first: domain.decoded(size)")
        self.images = domain.kind == "images"
        self.augmentation: Augmentation = augmentation if self.images else "none"
        self.crop = crop or (domain.x.shape[1] if self.images else 0)
        self.device = device
        self.size = len(domain)
        self._array = domain.x
        self.resident = _fits(domain.x.nbytes, device) if resident is None else resident
        self._tensor = _as_tensor(domain.x).to(device) if self.resident else None
        on_disk = domain.x[:1].nbytes < _SMALL and not (self.resident and device.type == "cuda")
        self._map = getattr(domain.x, "_mmap", None) if on_disk else None
        self._expected = _IN_ORDER

    def __len__(self) -> int:
        return self.size

    @property
    def example_shape(self) -> tuple[int, ...]:
        """The shape of one example as the network is given it: (d,) or (crop, crop, 3)."""
        return (self.crop, self.crop, 3) if self.images else tuple(self._array.shape[1:])

    @property
    def array(self) -> np.ndarray:
        """The inputs of all rows as they were given, in the host's memory."""
        self._expect(_IN_ORDER)
        return self._array

    def train(self, rows: Tensor) -> Tensor:
        """The inputs of these rows, augmented by the default generator."""
        return self.augmented(self.gather(rows), self.views(len(rows)))

    def views(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """So many random views (2, 3) as training sees examples; empty where it sees them as they are."""
        if self.augmentation == "none":
            return torch.empty(count, 0)
        height, width = self._array.shape[1:3]
        return aug.draw_views(self.augmentation, count, height, width, generator)

    def augmented(self, batch: Tensor, views: Tensor) -> Tensor:
        """What was gathered, as the network is given it under these views."""
        if not self.images:
            return batch
        if self.augmentation == "none":
            return self._centre(batch)
        return aug.resample(aug.to_float(batch), views.to(batch.device), self.crop)

    def test(self, rows: Tensor, *, in_order: bool = False) -> Tensor:
        """The inputs of these rows as they are, cut to the centre."""
        batch = self.gather(rows, in_order=in_order)
        return self._centre(batch) if self.images else batch

    def in_order(self, batch_size: int, rows: Tensor | None = None) -> Iterator[Tensor]:
        """Every input once, in order, unaugmented; or those of these rows."""
        chosen = torch.arange(self.size, device=self.device) if rows is None else rows.to(self.device)
        for part in torch.split(chosen, batch_size):
            yield self.test(part, in_order=rows is None)

    def spread(self, count: int) -> Tensor:
        """Up to so many rows, spread evenly over all."""
        return torch.linspace(0, self.size - 1, min(count, self.size), dtype=torch.float64).round().long()

    def gather(self, rows: Tensor, *, in_order: bool = False) -> Tensor:
        """The inputs of these rows as they are kept: vectors, or images as bytes (B, H, W, 3)."""
        self._expect(_IN_ORDER if in_order else _AT_RANDOM)
        if self._tensor is not None:
            return self._tensor[rows] if self.images else self._tensor.index_select(0, rows)
        return _as_tensor(self._array[rows.cpu().numpy()]).to(self.device)

    def blank(self, count: int, device: torch.device, *, pinned: bool = False) -> Tensor:
        """Room for so many inputs as they are kept."""
        kind = _as_tensor(self._array[:1]).dtype
        return torch.empty((count, *self._array.shape[1:]), dtype=kind, device=device, pin_memory=pinned)

    def read(self, rows: np.ndarray, into: Tensor) -> None:
        """The inputs of these rows from the host's memory, or from disk where they are mapped."""
        self._expect(_AT_RANDOM)
        np.take(self._array, rows, axis=0, out=into.numpy(), mode="clip")  # without a copy, which "raise" would make

    def _expect(self, order: int | None) -> None:
        """Tell the system in which order a mapped file will be read: unasked, it reads megabytes around every row."""
        if self._map is not None and order is not None and order != self._expected:
            self._map.madvise(order)
            self._expected = order

    def _centre(self, batch: Tensor) -> Tensor:
        return aug.to_float(aug.centre_crop(batch, self.crop))


class Order:
    """An endless stream of shuffled epochs over `rows`, cut into batches of one size.

    A batch may hold the end of one epoch and the start of the next, so every batch is full whatever the number of
    examples (even fewer than a batch), and every example is seen equally often.
    """

    def __init__(self, rows: Tensor, batch_size: int, device: torch.device, *seed: int | str) -> None:
        self._rows = rows.cpu()
        self._batch_size = batch_size
        self._device = device
        self._seed = seed
        self._epoch: tuple[int, Tensor] = (-1, rows)
        self._chunk: tuple[int, Tensor, Tensor] = (-1, rows, rows)

    def batch(self, step: int) -> Tensor:
        """Row numbers of batch `step`, on the device."""
        return self._chunk_of(step)[2][step % _CHUNK]

    def on_host(self, step: int) -> np.ndarray:
        """Row numbers of batch `step`, for reading from the host's memory."""
        return self._chunk_of(step)[1][step % _CHUNK].numpy()

    def _chunk_of(self, step: int) -> tuple[int, Tensor, Tensor]:
        number = step // _CHUNK
        if self._chunk[0] != number:
            chunk = self._make_chunk(number)
            self._chunk = (number, chunk, _sent(chunk, self._device))
        return self._chunk

    def _make_chunk(self, number: int) -> Tensor:
        size, total = len(self._rows), _CHUNK * self._batch_size
        start = number * total
        pieces: list[Tensor] = []
        while total > 0:
            epoch, offset = divmod(start, size)
            piece = self._shuffled(epoch)[offset : offset + total]
            pieces.append(piece)
            start, total = start + len(piece), total - len(piece)
        return torch.cat(pieces).view(_CHUNK, self._batch_size)

    def _shuffled(self, epoch: int) -> Tensor:
        if self._epoch[0] != epoch:
            generator = torch.Generator().manual_seed(derive_seed(*self._seed, "epoch", epoch))
            self._epoch = (epoch, self._rows[torch.randperm(len(self._rows), generator=generator)])
        return self._epoch[1]


class Views:
    """The random views of every batch, drawn on the host for many steps at a time: the same on every device."""

    def __init__(self, inputs: Inputs, batch_size: int, device: torch.device, *seed: int | str) -> None:
        self._inputs, self._batch_size, self._device, self._seed = inputs, batch_size, device, seed
        self._chunk: tuple[int, Tensor] = (-1, torch.empty(0))

    def batch(self, step: int) -> Tensor:
        """The views of batch `step`, one for each of its examples, on the device."""
        number, position = divmod(step, _VIEWS_CHUNK)
        if self._chunk[0] != number:
            generator = torch.Generator().manual_seed(derive_seed(*self._seed, "views", number))
            views = self._inputs.views(_VIEWS_CHUNK * self._batch_size, generator)
            self._chunk = (number, _sent(views, self._device).view(_VIEWS_CHUNK, self._batch_size, *views.shape[1:]))
        return self._chunk[1][position]


class Stream:
    """Batches of inputs that do not fit on the device, each gathered while the device is busy with the one before.

    A batch goes from the memory map into page-locked memory in a thread of its own, and from there to `now`, always the
    same place on the device, so that a recorded step finds it there.
    """

    def __init__(self, inputs: Inputs, order: Order, batch_size: int) -> None:
        self._inputs, self._order = inputs, order
        cuda = inputs.device.type == "cuda"
        self._host = [inputs.blank(batch_size, torch.device("cpu"), pinned=cuda) for _ in range(2)]
        self._sent: list[torch.cuda.Event | None] = [None, None]
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="robustda-read")
        self._ahead: tuple[int, Future[None]] | None = None
        self.now = inputs.blank(batch_size, inputs.device)

    def load(self, step: int) -> None:
        """Have batch `step` in `now`, and begin to read the next."""
        number, reading = self._ahead or (-1, None)
        if number != step or reading is None:
            reading = self._begin(step)
        reading.result()
        self.now.copy_(self._host[step % 2], non_blocking=True)
        if self._inputs.device.type == "cuda":
            event = self._sent[step % 2] = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._ahead = (step + 1, self._begin(step + 1))

    def _begin(self, step: int) -> Future[None]:
        return self._reader.submit(self._read, step, self._order.on_host(step))

    def _read(self, step: int, rows: np.ndarray) -> None:
        sent = self._sent[step % 2]
        if sent is not None:
            sent.synchronize()
        self._inputs.read(rows, self._host[step % 2])


def derive_seed(*parts: int | str) -> int:
    """A seed made of its parts: the same parts, the same seed, on every machine."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host's on the device, without a wait for what the device still has to do.

    A copy from ordinary memory would wait. From page-locked memory it is queued; PyTorch hands that memory, which
    nobody writes to again, out anew only when the copy is done.
    """
    if device.type != "cuda" or tensor.numel() == 0:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def _fits(n_bytes: int, device: torch.device) -> bool:
    if device.type != "cuda":
        return True  # on the CPU the memory map itself serves as the tensor, and the system pages it
    free, _ = torch.cuda.mem_get_info(device)
    return n_bytes <= free // 2


def _as_tensor(array: np.ndarray) -> Tensor:
    if min(array.strides) < 0:  # an array that was turned round
        return torch.from_numpy(array.copy())
    if not array.flags.writeable:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # read-only maps are never written to
            return torch.from_numpy(np.asarray(array))
    return torch.from_numpy(array)
