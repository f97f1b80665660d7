"""What robustda says when something is wrong: one line that tells what, where, and what to do."""

from __future__ import annotations

import signal

__all__ = ["ConfigError", "DataError", "RobustDAError", "RobustDAWarning", "RunError", "RunInUse", "RunStopped"]


class RobustDAError(ValueError):
    """A mistake a user can mend. The command line prints the message alone, without a traceback."""


class DataError(RobustDAError):
    """The data are not what they should be."""


class ConfigError(RobustDAError):
    """An option has a value that cannot work."""


class RunError(RobustDAError):
    """A run cannot start, go on or be read."""


class RunInUse(RunError):
    """Another process is at work on the run, and holds its lock."""


class RunStopped(SystemExit):
    """A run was asked to stop by a signal, and has kept its state. Uncaught, it ends the program as the signal does."""

    def __init__(self, by: signal.Signals) -> None:
        super().__init__(128 + by)
        self.by = by


class RobustDAWarning(UserWarning):
    """Something odd that does not stop the work."""
