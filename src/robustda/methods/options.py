"""The options of a method or of any settings dataclass, read off its fields and docstring.

The command line, `robustda methods` and the docs show these, so a parameter is described in one place: the docstring.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
from dataclasses import dataclass
from types import UnionType
from typing import Any, get_args, get_type_hints

__all__ = ["Option", "options"]


@dataclass(frozen=True)
class Option:
    """One setting."""

    name: str
    type: Any
    default: Any
    help: str
    owner: str
    """The class that introduces it."""


def options(kind: type, preset: str | None = None) -> list[Option]:
    """Every setting of a dataclass, the most specific class's first; defaults as `preset` has them."""
    hints = get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    changed: dict[str, Any] = {}
    presets = getattr(kind, "presets", None)
    if presets is not None and preset is not None:
        changed = {**presets[1].get(preset, {}), presets[0]: preset}
    found: list[Option] = []
    for base in kind.__mro__:
        described = _described(base)
        for name in getattr(base, "__annotations__", {}):
            if name in fields and all(option.name != name for option in found):
                default = changed.get(name, fields[name].default)
                found.append(Option(name, _from_text(hints[name]), default, described.get(name, ""), base.__name__))
    return found


def _from_text(hint: Any) -> Any:
    """What of a type can be written down: a module is for Python alone."""
    writable = [part for part in get_args(hint) if not hasattr(part, "state_dict")]
    if not isinstance(hint, UnionType) or len(writable) == len(get_args(hint)):
        return hint
    return functools.reduce(operator.or_, writable)


def _described(kind: type) -> dict[str, str]:
    """The entries ``name: text`` under "Parameters" in a docstring, with what is indented below them."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("Parameters\n----------\n")[2]
    entries = re.findall(r"^(\w+): (.*(?:\n[ \t]+.*)*)", text, flags=re.MULTILINE)
    return {name: " ".join(body.split()) for name, body in entries}
