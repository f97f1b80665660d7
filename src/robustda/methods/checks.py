"""Settings of a method that cannot work, refused in one line when it is made."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, get_args, get_origin, get_type_hints

import numpy as np

from robustda.errors import ConfigError

if TYPE_CHECKING:
    from robustda.methods.base import Method

__all__ = ["check_at_least", "check_known", "check_share", "check_types"]

_MOST = 2**53  # beyond it neither JSON nor a counter on a device holds a whole number


def check_types(method: Method) -> None:
    """Refuse words that are no choice, and what is no number where one is needed."""
    hints = get_type_hints(type(method))
    for name, hint in ((f.name, hints[f.name]) for f in dataclasses.fields(method)):
        value = getattr(method, name, None)
        if isinstance(value, np.integer | np.floating | np.ndarray):
            value = value.tolist()  # NumPy's numbers are as good as Python's, but JSON does not know them
            setattr(method, name, value)
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ConfigError(f"{name} is {value!r}: choose one of {', '.join(get_args(hint))}")
        if hint is int and not isinstance(value, int):
            raise ConfigError(f"{name} is {value!r}: give a whole number")
        if isinstance(value, int) and abs(value) >= _MOST:
            raise ConfigError(f"{name} is {value}: give a smaller number, below {_MOST:,}")
        if hint is float and not isinstance(value, int | float):
            raise ConfigError(f"{name} is {value!r}: give a number")


def check_at_least(method: Method, **lowest: float) -> None:
    """Refuse settings that are too small, or no finite number."""
    for name, bound in lowest.items():
        value = getattr(method, name)
        if not (math.isfinite(value) and value >= bound):
            raise ConfigError(f"{name} is {value}: give a number of at least {bound:g}")


def check_share(method: Method, *names: str, below_one: bool = False) -> None:
    """Refuse settings outside [0, 1], or [0, 1)."""
    for name in names:
        value = getattr(method, name)
        if not 0 <= value <= 1 or (below_one and value == 1):
            raise ConfigError(f"{name} is {value}: give a number from 0 to 1{', less than 1' * below_one}")


def check_known(who: str, given: Iterable[str], kind: type) -> None:
    """Every option that is given must be a field of this dataclass."""
    known = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
            raise ConfigError(f"{who} has no option {name!r}: {hint}")
