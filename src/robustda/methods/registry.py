"""Methods by their names: how one becomes known, what there is, and one with its settings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from robustda.errors import ConfigError
from robustda.methods.checks import check_known

if TYPE_CHECKING:
    from robustda.methods.base import Method

__all__ = ["create_method", "method_class", "method_names", "register", "with_presets"]

Kind = TypeVar("Kind", bound="type[Method]")
_REGISTRY: dict[str, type[Method]] = {}


def register(name: str) -> Callable[[Kind], Kind]:
    """Make a method known by a name: to the command line, the tests and the docs."""

    def decorate(kind: Kind) -> Kind:
        if name in _REGISTRY:
            raise ValueError(f"two methods are called {name!r}")
        kind.name = name
        _REGISTRY[name] = kind
        return kind

    return decorate


def with_presets(option: str, presets: dict[str, dict[str, Any]]) -> Callable[[Kind], Kind]:
    """Let one option choose the defaults of others: ``RDA(variant="paper")``. What is given explicitly wins."""

    def decorate(kind: Kind) -> Kind:
        plain = kind.__init__
        default = next(f.default for f in dataclasses.fields(kind) if f.name == option)

        @functools.wraps(plain)
        def init(self: Method, **given: Any) -> None:
            chosen = given.get(option, default)
            if chosen not in presets:
                raise ConfigError(f"{option} is {chosen!r}: choose one of {', '.join(presets)}")
            plain(self, **{**presets[chosen], **given})

        kind.__init__ = init  # type: ignore[method-assign]
        kind.presets = (option, presets)
        return kind

    return decorate


def method_names() -> list[str]:
    """Every registered method."""
    return sorted(_REGISTRY)


def method_class(name: str) -> type[Method]:
    """The class of a method."""
    if name not in _REGISTRY:
        raise ConfigError(f"there is no method {name!r}: choose one of {', '.join(method_names())}")
    return _REGISTRY[name]


def create_method(name: str, **params: Any) -> Method:
    """A method by name with its hyper-parameters."""
    kind = method_class(name)
    check_known(name, params, kind)
    return kind(**params)
