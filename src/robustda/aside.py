"""Something that is worked out in a thread of its own, while a GPU is busy with something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import torch

__all__ = ["Aside", "leaves_time"]

T = TypeVar("T")


def leaves_time(device: torch.device) -> bool:
    """Whether the processor has little to do while this device trains."""
    return device.type == "cuda"


class Aside(Generic[T]):
    """Begins at once. A program that ends does not wait for it.

    >>> Aside(lambda: 6 * 7).result()
    42
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._outcome: T
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._go, name="robustda-aside", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> T:
        """What came of it, once it is there; what went wrong is raised here."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._outcome

    def _go(self) -> None:
        try:
            self._outcome = self._work()
        except BaseException as error:  # for whoever asks
            self._error = error
