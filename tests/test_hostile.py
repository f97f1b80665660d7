"""Files from strangers: a table of bad inputs, each with the line it gets. docs/bad-input.md is written from here.

The cases are in hostile_*.py. Each makes its files and names a command; the command must end with one line that has the
words given, and without a traceback. Cases of harmless oddities must end well. ``ROBUSTDA_WRITE_DOCS=1 pytest
tests/test_hostile.py`` writes the table anew.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from pathlib import Path

import pytest

from hostile import CASES, Case
from robustda.cli import main
from robustda.data import tables
from robustda.errors import RobustDAWarning

for room in ("tables", "arrays", "images", "options", "folders"):
    importlib.import_module(f"hostile_{room}")  # enters its cases

DOCS = Path(__file__).parents[1] / "docs" / "bad-input.md"


def said(case: Case, place: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    arguments = case.make(place)
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always", RobustDAWarning)
        code = main(arguments)
    lines = capsys.readouterr().err.splitlines()
    return code, [line.replace(str(place), "DIR") for line in lines]


MESSAGES: dict[tuple[str, str], str] = {}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.name}")
def test_a_bad_input_gets_one_line(case, tmp_path, capsys, monkeypatch):
    if "limit lowered" in case.name:
        monkeypatch.setattr(tables, "memory_size", lambda: 20_000_000)
    code, lines = said(case, tmp_path, capsys)
    if not case.words:
        assert (code, lines) == (0, [])
        MESSAGES[case.kind, case.name] = "*works*"
        return
    assert code == (0 if case.warns else 2), lines
    lines = list(dict.fromkeys(lines))  # source and target are the same here: a warning comes for each
    assert len(lines) == 1, lines
    line = lines[0].removeprefix("robustda: ")
    assert all(word in line for word in case.words), line
    assert len(line) < 700
    MESSAGES[case.kind, case.name] = line


def test_there_are_enough_of_them():
    assert len([case for case in CASES if case.words]) >= 60
    assert len({(case.kind, case.name) for case in CASES}) == len(CASES)


def cell(text: str) -> str:
    """Text as it may stand in a table of Markdown."""
    shown = text.encode("ascii", "backslashreplace").decode() if re.search(r"[\x00-\x1f]", text) else text
    return re.sub("0x[0-9a-f]{6,}", "0x…", shown).replace("|", "\\|")[:400]


def test_the_table_in_the_docs_is_this_one(request):
    if len(MESSAGES) < len(CASES):
        pytest.skip("needs the messages of all cases, which another process or selection has")
    lines = [
        "# Bad inputs, and what is said about them",
        "",
        "Written by tests/test_hostile.py, which checks each. *works* stands for oddities that do no harm; a warning",
        "names what is left out, and the rest is used; an error ends the command with exit code 2. DIR is the case's",
        "folder.",
        "",
        "| | input | answer |",
        "|---|---|---|",
        *(f"| {kind} | {cell(name)} | {cell(line)} |" for (kind, name), line in MESSAGES.items()),
        "",
    ]
    if os.environ.get("ROBUSTDA_WRITE_DOCS"):
        DOCS.write_text("\n".join(lines), encoding="utf-8")
    # How a line goes on is often another library's word, which changes with its version.
    begun = [[part.strip()[:40] for part in re.sub(r"\(.*", "", line).split(" | ")] for line in lines]
    there = DOCS.read_text(encoding="utf-8").splitlines()
    assert [[part.strip()[:40] for part in re.sub(r"\(.*", "", line).split(" | ")] for line in there] == begun[:-1]
