"""What robustda says when something is wrong: one line that tells what, where, and what to do."""

from __future__ import annotations

__all__ = ["ConfigError", "DataError", "RobustDAError", "RobustDAWarning", "RunError"]


class RobustDAError(ValueError):
    """A mistake a user can mend. The command line prints the message alone, without a traceback."""


class DataError(RobustDAError):
    """The data are not what they should be."""


class ConfigError(RobustDAError):
    """An option has a value that cannot work."""


class RunError(RobustDAError):
    """A run cannot start, go on or be read."""


class RobustDAWarning(UserWarning):
    """Something odd that does not stop the work."""
