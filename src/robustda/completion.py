"""Scripts that complete robustda's commands, options and choices in bash, zsh and fish, written from the parsers."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from robustda.commands.parsing import parser_of

__all__ = ["SHELLS", "Completed", "described", "script"]

Command = Callable[[list[str]], int]
SHELLS = ("bash", "zsh", "fish")


@dataclass
class Completed:
    """What can follow a command."""

    help: str
    options: dict[str, tuple[str, tuple[str, ...]]]
    """for each option its help and the values it may have; no values means anything, a file perhaps"""
    words: tuple[str, ...]
    """what its first argument may be; empty for files"""


def described(commands: Mapping[str, Command]) -> dict[str, Completed]:
    """The options of every command; those of fit for all methods together."""
    from robustda.bench.experiments import EXPERIMENTS
    from robustda.methods import method_names

    methods = tuple(method_names())
    words = {"methods": methods, "bench": (*EXPERIMENTS, "fig-losses"), "completion": SHELLS, "data": ("check",)}
    found: dict[str, Completed] = {}
    for name, command in commands.items():
        first = (command.__doc__ or "").strip().partition("\n")[0]
        here = Completed(first, {}, words.get(name, ()))
        for arguments in [["--method", method] for method in methods] if name == "fit" else [[]]:
            for action in parser_of(command, arguments)._actions:
                for option in action.option_strings:
                    if option.startswith("--") and not option.endswith("+"):
                        here.options.setdefault(option, (_first_sentence(action.help), _values(action)))
        if "--method" in here.options:
            here.options["--method"] = (here.options["--method"][0], methods)
        found[name] = here
    return found


def script(shell: str, commands: Mapping[str, Command]) -> str:
    """The script for a shell."""
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return made(described(commands))


def _bash(found: dict[str, Completed]) -> str:
    lines = [
        "# bash completion for robustda:  source <(robustda completion bash)",
        "_robustda() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" options="" values="" words=""',
        '    if [[ $before == "=" ]]; then before="${COMP_WORDS[COMP_CWORD-2]}"; fi',
        '    if [[ $word == "=" ]]; then word=""; fi',
        "    COMPREPLY=()",
        "    if [[ $COMP_CWORD -eq 1 ]]; then",
        f'        COMPREPLY=($(compgen -W "{" ".join(found)} --help --version" -- "$word"))',
        "        return",
        "    fi",
        '    case "${COMP_WORDS[1]}" in',
    ]
    for name, about in found.items():
        lines.append(f"    {name})")
        lines.append(f'        options="{" ".join(about.options)}"')
        if about.words:
            lines.append(f'        words="{" ".join(about.words)}"')
        if valued := {option: values for option, (_, values) in about.options.items() if values}:
            lines.append('        case "$before" in')
            lines += [f'        {option}) values="{" ".join(values)}" ;;' for option, values in valued.items()]
            lines.append("        esac")
        lines.append("        ;;")
    lines += [
        "    esac",
        "    if [[ -n $values ]]; then",
        '        COMPREPLY=($(compgen -W "$values" -- "$word"))',
        "    elif [[ $word == -* ]]; then",
        '        COMPREPLY=($(compgen -W "$options" -- "$word"))',
        "    elif [[ -n $words && $COMP_CWORD -eq 2 ]]; then",
        '        COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "    else",
        "        compopt -o filenames 2>/dev/null",
        "        local IFS=$'\\n'; COMPREPLY=($(compgen -f -- \"$word\"))",
        "    fi",
        "}",
        "complete -F _robustda robustda",
    ]
    return "\n".join(lines) + "\n"


def _zsh(found: dict[str, Completed]) -> str:
    lines = ["#compdef robustda", "# zsh completion for robustda:  source <(robustda completion zsh)", "_robustda() {"]
    lines += ["    local -a commands=("]
    lines += [f"        {shlex.quote(name + ':' + about.help.replace(':', ' '))}" for name, about in found.items()]
    lines += [
        "    )",
        "    if (( CURRENT == 2 )); then",
        "        _describe command commands",
        "        return",
        "    fi",
    ]
    lines += ["    local command=$words[2]", "    shift words", "    (( CURRENT-- ))", "    case $command in"]
    for name, about in found.items():
        lines.append(f"    {name})")
        lines.append("        _arguments -S \\")
        for option, (help, values) in about.options.items():
            shown = help.replace("[", "(").replace("]", ")").replace(":", "\\:")
            after = f"({' '.join(values)})" if values else "_files"
            spec = f"{option}[{shown}]" if option == "--help" else f"{option}=[{shown}]:value:{after}"
            lines.append(f"            {shlex.quote(spec)} \\")
        first = f"({' '.join(about.words)})" if about.words else "_files"
        lines.append(f"            {shlex.quote(f'*:argument:{first}')}")
        lines.append("        ;;")
    return "\n".join([*lines, "    esac", "}", "compdef _robustda robustda"]) + "\n"


def _fish(found: dict[str, Completed]) -> str:
    lines = [
        "# fish completion for robustda:  robustda completion fish | source",
        "function __robustda_command",
        "    set -l words (commandline -opc)",
        '    test (count $words) -ge 2; and test "$words[2]" = "$argv[1]"',
        "end",
    ]
    none = "'test (count (commandline -opc)) -eq 1'"
    for name, about in found.items():
        lines.append(f"complete -c robustda -f -n {none} -a {name} -d {_fish_quoted(about.help)}")
    for name, about in found.items():
        here = _fish_quoted(f"__robustda_command {name}")
        if about.words:
            lines.append(f"complete -c robustda -f -n {here} -a {_fish_quoted(' '.join(about.words))}")
        for option, (help, values) in about.options.items():
            after = "" if option == "--help" else f" -x -a {_fish_quoted(' '.join(values))}" if values else " -r"
            lines.append(
                f"complete -c robustda -n {here} -l {option.removeprefix('--')}{after} -d {_fish_quoted(help)}"
            )
    return "\n".join(lines) + "\n"


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _first_sentence(help: Any) -> str:
    text = " ".join(str(help or "").split())
    return text if len(text) <= 80 else text[:77].rsplit(" ", 1)[0] + "..."


def _values(action: Any) -> tuple[str, ...]:
    hint = getattr(action, "_typehint", None) or getattr(action, "type", None)
    with contextlib.suppress(TypeError):
        if get_origin(hint) is Literal:
            return tuple(str(value) for value in get_args(hint))
    return ("true", "false") if hint is bool or getattr(action, "const", None) is True else ()
