"""Help around the tool itself: doctor, completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from robustda.commands.parsing import make_parser

__all__ = ["completion_of", "doctor"]


def doctor(arguments: list[str]) -> int:
    """Look at versions, device, folders and extras, and say what to do about what is wrong."""
    from robustda.doctor import examine

    parser = make_parser("doctor", doctor.__doc__)
    parser.parse_args(arguments)
    marks = {"good": "ok ", "note": "-  ", "bad": "BAD"}
    bad = 0
    for finding in examine():
        bad += finding.state == "bad"
        print(f"{marks[finding.state]} {finding.topic:<13} {finding.text}", flush=True)
        if finding.remedy:
            print(f"{'':<17} → {finding.remedy}")
    print(f"{bad} problem{'s' * (bad != 1)} to mend" if bad else "all is well")
    return 1 if bad else 0


def completion_of(commands: Mapping[str, Callable[[list[str]], int]]) -> Callable[[list[str]], int]:
    """The command that completes all the others."""

    def completion(arguments: list[str]) -> int:
        """Print a script that completes commands and options in a shell."""
        from robustda.completion import script

        parser = make_parser("completion", completion.__doc__)
        shell = "bash: source <(robustda completion bash); zsh the same; fish: robustda completion fish | source"
        parser.add_argument("shell", type=Literal["bash", "zsh", "fish"], help=shell)
        chosen = parser.parse_args(arguments)
        print(script(chosen.shell, commands), end="")
        return 0

    return completion
