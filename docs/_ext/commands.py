"""The command line's reference, read off its own parsers while the site is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from robustda.cli import _COMMANDS
from robustda.commands.parsing import parser_of
from robustda.engine import Runtime
from robustda.methods.base import Method
from robustda.methods.options import Option, options
from robustda.methods.registry import method_class, method_names


class Commands(SphinxDirective):
    """Every command with its options: a section each."""

    def run(self) -> list[nodes.Node]:
        text = "\n".join(line for name in _COMMANDS for line in command(name))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Methods(SphinxDirective):
    """Every method with the options that are its own, and at the end those that all share."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for name in method_names():
            kind = method_class(name)
            own = [option for option in options(kind) if option.owner != Method.__name__]
            lines += [f"## {name}", "", f"{_sentence(kind.summary)}", "", f"*{kind.paper}*", ""]
            lines += method_table(own, kind) if own else ["It has no options but the common ones.", ""]
        lines += ["## Options of all methods", "", *method_table(options(Method), Method)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class Estimators(SphinxDirective):
    """The estimators by name, each with its method."""

    def run(self) -> list[nodes.Node]:
        from robustda.estimators.make import estimator_name

        rows = [(f"``robustda.{estimator_name(method_class(name))}``", method_class(name)) for name in method_names()]
        lines = [
            ".. list-table::",
            "   :header-rows: 1",
            "",
            "   * - estimator",
            "     - method",
            "     - what it does",
        ]
        for name, kind in rows:
            lines += [f"   * - {name}", f"     - ``{kind.name}``", f"     - {kind.summary}"]
        return self.parse_text_to_nodes("\n".join(lines))


def command(name: str) -> Iterator[str]:
    """A section of Markdown."""
    function = _COMMANDS[name]
    parser = parser_of(function, [])
    actions = [action for action in parser._actions if action.dest not in ("help", "print_config", "print_shtab")]
    usage = " ".join(filter(None, [f"robustda {name}", *map(_place, actions)]))
    yield from [f"## {name}", "", str(function.__doc__), "", "```text", usage, "```", ""]
    aside = {option.name: option.owner for option in [*options(method_class("rda")), *options(Runtime)]}
    own = [action for action in actions if name not in ("fit", "tune") or action.dest not in aside]
    yield from table([_row(action) for action in own])
    if name in ("fit", "tune"):
        runtime = {option.name for option in options(Runtime)}
        carried = [action for action in actions if action.dest in runtime]
        if carried:
            yield from ["How the run is carried out:", ""]
            yield from table([_row(action) for action in carried])
        yield from ["And every option of the method: [methods and their options](methods.md).", ""]


def method_table(given: list[Option], kind: type[Method]) -> list[str]:
    """Options with their defaults; where a preset has another value, that is told as well."""
    presets = kind.presets[1] if kind.presets else {}
    rows = []
    for option in given:
        others = [f"{preset}: `{values[option.name]}`" for preset, values in presets.items() if option.name in values]
        default = ", ".join([f"`{option.default}`", *others])
        rows.append((f"`--{option.name}`", default, option.help))
    return list(table(rows))


def table(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """Markdown."""
    yield from ["| option | default | meaning |", "|---|---|---|"]
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def _place(action: Any) -> str:
    """How an argument stands in a command, where it must stand there."""
    word = action.dest.upper()
    if action.option_strings:
        return f"{action.option_strings[-1]} {word}" if action.required else ""
    return {"?": f"[{word}]", "*": f"[{word} ...]", "+": f"{word} ..."}.get(action.nargs, word)


def _row(action: Any) -> tuple[str, str, str]:
    name = f"`{action.option_strings[-1]}`" if action.option_strings else f"`{action.dest.upper()}`"
    required = action.required or (not action.option_strings and action.nargs not in ("?", "*"))
    default = "required" if required else "" if action.default in (None, [], "==SUPPRESS==") else f"`{action.default}`"
    return name, default, str(action.help or "").replace("%%", "%")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("robustda-commands", Commands)
    app.add_directive("robustda-methods", Methods)
    app.add_directive("robustda-estimators", Estimators)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
