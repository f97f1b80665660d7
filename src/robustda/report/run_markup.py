"""HTML and SVG written piece by piece, so that text from the data is escaped wherever it goes.

>>> el("p", {"class": "note", "title": '"x"'}, "1 < 2, ", el("b", None, "so"))
'<p class="note" title="&quot;x&quot;">1 &lt; 2, <b>so</b></p>'
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Attributes", "Markup", "el", "facts", "join", "name", "scrolling", "section", "table"]

_EMPTY = {"circle", "line", "path", "rect"}
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")  # what a page cannot hold


class Markup(str):
    """Text that is markup already. Only `el` and `join` make it."""

    __slots__ = ()


Attributes = Mapping[str, str | float | bool | None]


def el(tag: str, attributes: Attributes | None = None, *children: str) -> Markup:
    """An element. Children that are no markup are text, and escaped."""
    written = [_attribute(key, value) for key, value in (attributes or {}).items() if value not in (None, False)]
    start = f"<{tag}{''.join(written)}"
    return Markup(f"{start}/>" if tag in _EMPTY and not children else f"{start}>{join(children)}</{tag}>")


def join(children: Iterable[str]) -> Markup:
    """Several pieces one after the other."""
    return Markup("".join(child if isinstance(child, Markup) else _escaped(child) for child in children))


def name(text: str) -> Markup:
    """A name from the data: it may be written from right to left, and must not turn the sentence around it."""
    return el("bdi", None, text)


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    optional: Sequence[int] = (),
) -> Markup:
    """A table whose first column names the row; `numbers` are columns set to the right, `optional` not for phones."""

    def classed(column: int) -> dict[str, str | None]:
        kinds = ["number"] * (column in numbers) + ["optional"] * (column in optional)
        return {"class": " ".join(kinds) or None}

    # A column of bars says nothing that the numbers beside it do not, so it has no heading.
    columns = [
        el("th", {"scope": "col", **classed(place)}, text) if text else el("td", classed(place))
        for place, text in enumerate(head)
    ]
    body = [
        el(
            "tr",
            None,
            el("th", {"scope": "row", **classed(0)}, row[0]),
            *(el("td", classed(place), text) for place, text in enumerate(row[1:], 1)),
        )
        for row in rows
    ]
    return el(
        "table",
        None,
        el("caption", {"class": "hidden"}, caption),
        el("thead", None, el("tr", None, *columns)) if any(head) else Markup(""),
        el("tbody", None, *body),
    )


def scrolling(label: str, *children: str, tall: bool = False) -> Markup:
    """Something that may be wider than the screen, or tall: it scrolls by itself, by keyboard too."""
    kind = "scrolling tall" if tall else "scrolling"
    return el("div", {"class": kind, "tabindex": "0", "role": "region", "aria-label": label}, *children)


def facts(kicker: str, about: str, headline: Sequence[str], known: Sequence[tuple[str, str]]) -> Markup:
    """What stands at the top: the sentences, then a few numbers."""
    return Markup(
        el("p", {"class": "kicker"}, el("span", None, kicker), " ", name(about))
        + el("h1", {"id": "headline"}, headline[0])
        + el("ul", {"id": "sentences"}, *(el("li", None, text) for text in headline[1:]))
        + el(
            "dl",
            {"id": "facts"},
            *(el("div", None, el("dt", None, what), el("dd", None, value)) for what, value in known),
        )
    )


def section(identity: str, title: str, *content: str, note: str = "", full: bool = False) -> Markup:
    """A part of the page with its heading."""
    return el(
        "section",
        {"aria-labelledby": identity, "class": "full" if full else None},
        el("h2", {"id": identity}, title),
        el("p", {"class": "note"}, note) if note else Markup(""),
        *content,
    )


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is True:
        return f" {key}"
    return f' {key}="{_escaped(f"{value:g}" if isinstance(value, float) else str(value))}"'


def _escaped(text: str) -> str:
    return html.escape(_NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", text))
