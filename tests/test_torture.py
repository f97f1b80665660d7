"""A small part of `make torture`: some kills of every method, and every other fault once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import environment
from robustda.methods import method_names

SUITE = Path(__file__).with_name("torture.py")
FAULTS = [
    ("asked_to_stop", 6),
    ("full_disk", 1),
    ("read_only", 2),
    ("no_memory", 1),
    ("damage", 11),
    ("two_at_once", 1),
    ("clock", 2),
    ("images_change", 6),
]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and limits what a process may have")


def suite(*arguments: str) -> str:
    """What the suite prints; it ends with an error at the first thing that does not come out as it should."""
    path = {"PYTHONPATH": f"{SUITE.parent}:{environment()['PYTHONPATH']}"}
    done = subprocess.run(
        [sys.executable, str(SUITE), *arguments], env=environment() | path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_twenty_kills_over_all_methods_cost_time_only():
    printed = suite("--only", "kills", "--kills", "20", "--seed", "1")
    total, methods = re.search(r"\*\*(\d+) kills\*\* .* over (\d+) methods", printed).groups()
    assert int(total) >= 20
    assert int(methods) == len(method_names())


@pytest.mark.parametrize(("fault", "least"), FAULTS)
def test_a_fault_is_survived_or_said_in_one_line(fault, least):
    printed = suite("--only", fault, "--methods", "rda", "--seed", "1")
    assert len([line for line in printed.splitlines() if " · rda · " in line]) >= least
