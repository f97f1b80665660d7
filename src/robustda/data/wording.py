"""Small phrases that the messages of this room share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["listed", "nearest", "plural"]


def listed(values: Iterable[Any], limit: int = 5) -> str:
    """The first few values in quotes and how many more: ``'a', 'b' and 3 more``."""
    texts = [f"'{value}'" for value in values]
    more = f" and {len(texts) - limit} more" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more


def nearest(name: str, options: Sequence[str]) -> str:
    """What the user may have meant, then what there is."""
    by_lower = {option.lower(): option for option in options}
    close = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    guess = f"did you mean {listed(close)}? " if close else ""
    return f"{guess}(there are: {listed(options, 12)})" if options else "there are none"


def plural(count: int, noun: str) -> str:
    """``1 image``, ``3 images``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
