"""Docstrings as they are written here, turned into reStructuredText for autodoc.

They are plain text with `names` in backticks, ``code`` in double ones, indented code, doctests, and lists of parameters
as ``name: text`` or ``name : text`` under "Parameters". Everything else that reStructuredText would take for markup (a
star, a bar, an underscore at the end of a word) is meant as it stands.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

import robustda
from robustda.methods.base import Method

_ENTRY = re.compile(r"^(\w+) ?: (.*)$")
_CODE = re.compile(r"(``.+?``|`[^`\n]+`)", re.DOTALL)


def rewrite(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Sphinx's hook: replaces the lines of a docstring by what is to be read."""
    defaults = {}
    if inspect.isclass(obj) and dataclasses.is_dataclass(obj):
        defaults = {field.name: field.default for field in dataclasses.fields(obj)}
        if lines and lines[0].startswith(f"{obj.__name__}("):
            lines[:] = []  # what a dataclass without a docstring is given by Python
    if lines and lines[0].startswith("Alias for field number"):
        lines[:] = []  # the same of a named tuple
    lines[:] = list(converted(lines, defaults))


def converted(lines: list[str], defaults: dict[str, Any]) -> Iterator[str]:
    """The docstring in reStructuredText. A class's own defaults are told with its parameters."""
    text, listed, rest = "\n".join(lines), "", ""
    if "\nParameters\n----------\n" in f"\n{text}":
        text, _, after = f"\n{text}".partition("\nParameters\n----------\n")
        entries = re.match(r"(?:\S+ ?: .*\n?(?:[ \t]+.*\n?)*)+", after)
        listed = after[: entries.end()] if entries else ""
        rest = after[len(listed) :]
    yield from paragraphs(text)
    yield ""
    for entry in re.split(r"\n(?=\S)", listed.strip("\n")):
        found = _ENTRY.match(entry.split("\n")[0])
        if found:
            body = " ".join([found[2], *entry.split("\n")[1:]])
            yield f":param {found[1]}: {escaped(' '.join(body.split()))}{_default(defaults, found[1])}"
    yield ""
    yield from paragraphs(rest)
    yield ""


def paragraphs(text: str) -> Iterator[str]:
    """Prose with its markup made safe; what is indented is code."""
    for part in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = part.split("\n")
        if part.lstrip().startswith(">>>"):
            yield from inspect.cleandoc(part).split("\n")
        elif lines[0].startswith("    "):
            yield from [f".. code-block:: {_language(part)}", "", *lines]
        else:
            prose = [line for line in lines if not line.startswith("    ")]
            below = lines[len(prose) :]
            if all(line.startswith("    ") for line in below) and below:
                yield from [
                    *escaped("\n".join(prose)).split("\n"),
                    "",
                    f".. code-block:: {_language(chr(10).join(below))}",
                    "",
                    *below,
                ]
            else:
                yield from escaped(part).split("\n")
        yield ""


def escaped(text: str) -> str:
    """Text without accidental markup: names in backticks become links where they are public, else code."""
    parts = _CODE.split(text)
    return "".join(_code(part.strip("`")) if at % 2 else _plain(part) for at, part in enumerate(parts))


def _plain(text: str) -> str:
    text = re.sub(r"([\\*|])", r"\\\1", text)
    return re.sub(r"_(?!\w)", r"\\_", text)


def _code(text: str) -> str:
    if text in robustda.__all__ and not text.startswith("_"):
        return f"\\ :py:obj:`~robustda.{text}`\\ "
    if re.fullmatch(r"robustda(\.\w+)+", text):
        return f"\\ :py:obj:`{text}`\\ "
    return f"\\ ``{text}``\\ "


def _language(text: str) -> str:
    try:
        ast.parse(inspect.cleandoc(text))
    except SyntaxError:
        return "text"
    return "python"


def _default(defaults: dict[str, Any], name: str) -> str:
    value = defaults.get(name, dataclasses.MISSING)
    return "" if value is dataclasses.MISSING else f" *Default:* ``{value!r}``"


def shorten(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """A method has forty settings: they are a list below its name, not one more list within it."""
    if inspect.isclass(obj) and issubclass(obj, Method):
        return "(**settings)", None
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", rewrite)
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
