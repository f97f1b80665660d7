"""The command line: ``robustda fit | predict | audit | ...``; what each command does is in `commands/`.

Every option of a method is an option here, and a key in ``--config file.yaml``; ``--print_config`` writes such a file.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from robustda._version import __version__
from robustda.commands import benching, exporting, helping, learning, looking, reporting, tuning
from robustda.errors import ConfigError, RobustDAError, RobustDAWarning, RunStopped

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 well, 2 a mistake that the user can mend, 128 + n signal n."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _run(given)
            sys.stdout.flush()
            return code
    except BrokenPipeError:
        # Whoever reads our output has seen enough (| head); at its end Python would complain of it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except RobustDAError as error:
        print(f"robustda: error: {_shown(error)}", file=sys.stderr)
        return 2
    except RunStopped as stopped:
        print(f"robustda: stopped by {stopped.by.name}; the same command takes it up again", file=sys.stderr)
        return 128 + stopped.by
    except KeyboardInterrupt:
        print("robustda: interrupted; the same command with --out takes it up again", file=sys.stderr)
        return 130


def _run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if given[0] == "--version":
        print(f"robustda {__version__}")
        return 0
    if given[0] not in _COMMANDS:
        close = get_close_matches(given[0], _COMMANDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(_COMMANDS)}"
        raise ConfigError(f"there is no command {given[0]!r}: {hint}")
    return _COMMANDS[given[0]]([_with_underscores(argument) for argument in given[1:]])


def _with_underscores(argument: str) -> str:
    """An option as it is called here, for those who write it with dashes.

    >>> _with_underscores("--limit-minutes"), _with_underscores("--out=a-b"), _with_underscores("a--b-c")
    ('--limit_minutes', '--out=a-b', 'a--b-c')
    """
    name, sign, value = argument.partition("=")
    return "--" + name[2:].replace("-", "_") + sign + value if name.startswith("--") else argument


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "fit": learning.fit,
    "predict": learning.predict,
    "export": exporting.export,
    "features": looking.features,
    "audit": looking.audit,
    "report": reporting.report,
    "tune": tuning.tune,
    "corrupt": looking.corrupt,
    "bench": benching.bench,
    "data": looking.data,
    "methods": learning.methods,
    "demo": learning.demo,
    "doctor": helping.doctor,
}
_COMMANDS["completion"] = helping.completion_of(_COMMANDS)


def _overview() -> str:
    lines = [f"robustda {__version__}: domain adaptation when the source data are noisy", ""]
    lines += [f"  robustda {name:<10} {command.__doc__}" for name, command in _COMMANDS.items()]
    return "\n".join([*lines, "", "robustda COMMAND --help shows the options of a command."])


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, RobustDAWarning):
        print(f"robustda: warning: {_shown(message)}", file=sys.stderr)


def _shown(message: object) -> str:
    """A message may quote a file, and a file may hold what a terminal would obey."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(message))


if __name__ == "__main__":
    sys.exit(main())
