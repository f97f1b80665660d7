"""Being asked to stop: Ctrl-C, a cluster's SIGTERM, SIGUSR1. The step in hand is finished and the state kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from robustda.errors import RunStopped

__all__ = ["StopRequest"]

_SIGNALS = [name for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]


class StopRequest:
    """Set by a signal, looked at between two steps, or batches that are described. A second Ctrl-C does not wait."""

    def __init__(self) -> None:
        self._got = 0

    def __bool__(self) -> bool:
        return self._got != 0

    @property
    def number(self) -> int:
        """Of the signal that came; 0 while none has."""
        return self._got

    def heed(self) -> None:
        """Stop if that was asked for."""
        if self:
            self.obey()

    def obey(self, number: int = 0) -> None:
        """Stop, as asked; by the signal that another process got, if it is given."""
        number = number or self._got
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise RunStopped(signal.Signals(number))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Catch the signals for a time. Only the main thread may; in another one a run is not asked this way."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {name: signal.getsignal(getattr(signal, name)) for name in _SIGNALS}
        for name in _SIGNALS:
            signal.signal(getattr(signal, name), self._note)
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler if handler is not None else signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._got and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._got = number
