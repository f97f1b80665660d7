"""What to search: options of a method with a range or a list of values, from text or from Python.

learning_rate=0.0005:0.02:log      from .0005 to .02, even in the logarithm
epochs=5:40                        whole numbers, where the option takes such
keep_rule=paper,authors,plain      one of these
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import yaml

from robustda.data.wording import nearest
from robustda.errors import ConfigError
from robustda.methods.options import options
from robustda.methods.registry import create_method, method_class

__all__ = ["Choice", "Range", "Space", "combinations", "read_space"]


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def distribution(self) -> Any:
        """As Optuna has it."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def __str__(self) -> str:
        return f"{self.low:g}:{self.high:g}{':log' * self.log}"


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Any, ...]

    def distribution(self) -> Any:
        """As Optuna has it."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)

    def __str__(self) -> str:
        return ",".join(str(value).lower() if isinstance(value, bool) else str(value) for value in self.values)


Space = dict[str, Range | Choice]


def read_space(method: str, search: Iterable[str] | Mapping[str, Any]) -> Space:
    """The space, checked against the options of the method: every end and every value is tried on it.

    From Python, a range is a tuple (low, high) or (low, high, "log"), a choice a list of values.

    >>> {name: str(part) for name, part in read_space("mdd", ["beta=0.01:1:log", "width=64,128"]).items()}
    {'beta': '0.01:1:log', 'width': '64,128'}
    """
    given = search.items() if isinstance(search, Mapping) else [_split(text) for text in search]
    known = {option.name: option for option in options(method_class(method))}
    space: Space = {}
    for name, wanted in given:
        if name not in known:
            raise ConfigError(f"{method} has no option {name!r} to search: {nearest(name, list(known))}")
        if name in space:
            raise ConfigError(f"{name} is searched twice: give it once")
        parts = wanted.split(":") if isinstance(wanted, str) and ":" in wanted else wanted
        if isinstance(wanted, tuple) or parts is not wanted:
            space[name] = _range(name, parts, known[name].type)
        else:
            values = wanted.split(",") if isinstance(wanted, str) else wanted
            space[name] = _choice(name, [_value(value, known[name].type) for value in values])
    if not space:
        raise ConfigError("there is nothing to search: give --search option=low:high[:log] or option=a,b,c")
    for name, part in space.items():
        for value in part.values if isinstance(part, Choice) else (part.low, part.high):
            create_method(method, **{name: int(value) if isinstance(part, Range) and part.whole else value})
    return space


def combinations(space: Space) -> list[dict[str, Any]] | None:
    """Every combination where there are but so many, else None."""
    if not all(isinstance(part, Choice) for part in space.values()):
        return None
    values = [part.values for part in space.values() if isinstance(part, Choice)]
    return [dict(zip(space, chosen, strict=True)) for chosen in itertools.product(*values)]


def _split(text: str) -> tuple[str, str]:
    name, equals, wanted = text.partition("=")
    if not (name and equals and wanted):
        raise ConfigError(f"cannot read the search {text!r}: give option=low:high[:log] or option=a,b,c")
    return name.strip().removeprefix("--"), wanted.strip()


def _range(name: str, parts: Sequence[Any], kind: Any) -> Range:
    if not (kind in (int, float) or {int, float} & set(get_args(kind))):
        raise ConfigError(f"{name} is no number, so it has no range: give values with commas between them")
    try:
        low, high = float(parts[0]), float(parts[1])
        log = len(parts) > 2
    except (ValueError, TypeError, IndexError):
        low, high, log = 1.0, 0.0, False
    if len(parts) > 3 or (log and parts[2] != "log") or not low < high:
        shown = ":".join(map(str, parts))
        raise ConfigError(
            f"the range {shown!r} of {name} cannot be read: give low:high or low:high:log, low below high"
        )
    if log and low <= 0:
        raise ConfigError(f"the range of {name} starts at {low:g}: a logarithm needs more than 0")
    if kind is int and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f"{name} takes whole numbers, but its range is {low:g}:{high:g}")
    return Range(low, high, log, whole=kind is int)


def _choice(name: str, values: list[Any]) -> Choice:
    different = [value for place, value in enumerate(values) if value not in values[:place]]
    if len(different) < 2:
        raise ConfigError(f"{name} has one value only: give at least two, or a range low:high")
    return Choice(tuple(different))


def _value(value: Any, kind: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        read = value  # text like any other; whether the option takes it is looked at next
    if kind is str or not isinstance(read, bool | int | float):
        return value.strip()
    return float(read) if kind is float and not isinstance(read, bool) else read
