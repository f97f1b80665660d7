"""Importing robustda costs nothing, and every public name is where it is said to be."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import robustda

HEAVY = {"torch", "torchvision", "timm", "numpy", "pandas", "sklearn", "scipy", "matplotlib", "PIL", "rich", "pyarrow"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def test_import_loads_nothing_heavy():
    report = run("-X", "importtime", "-c", "import robustda").stderr
    imported = {found.partition(".")[0] for found in re.findall(r"\|\s+([\w.]+)$", report, flags=re.MULTILINE)}
    assert "robustda" in imported
    assert not imported & HEAVY


def test_version_and_overview_need_nothing_heavy():
    for arguments in ([], ["--version"], ["nonsense"]):
        code = (
            f"import sys; from robustda.cli import main; main({arguments}); print(sorted(set(sys.modules) & {HEAVY}))"
        )
        assert run("-c", code).stdout.splitlines()[-1] == "[]"


def test_import_opens_no_connection():
    # The audit hook sees every socket that Python makes, whoever asks for it.
    code = """
import sys
seen = []
sys.addaudithook(lambda event, _: seen.append(event) if event.startswith("socket.") else None)
import robustda
for name in robustda.__all__:
    getattr(robustda, name)
import robustda.cli, robustda.demo
print([event for event in seen if event != "socket.gethostname"])
"""
    assert run("-c", code).stdout.strip() == "[]"


def test_every_public_name_resolves():
    assert robustda.__all__
    for name in robustda.__all__:
        assert getattr(robustda, name) is not None
    assert robustda.RDA.__module__ == "robustda.methods.rda"


def test_star_import_gives_the_public_names():
    found: dict[str, object] = {}
    exec("from robustda import *", found)
    assert set(robustda.__all__) <= set(found)


def test_dir_lists_the_public_names():
    assert set(robustda.__all__) <= set(dir(robustda))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'rda'"):
        robustda.rda  # noqa: B018


def test_version_agrees_with_the_command_line(capsys):
    from robustda.cli import main

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"robustda {robustda.__version__}\n"
