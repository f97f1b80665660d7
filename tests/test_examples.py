"""The examples are run as they stand, on less data."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def main_of(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / name))["main"]


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tested] == []


def test_plain_pytorch() -> None:
    accuracy = main_of("plain_pytorch.py")(n_source=500, epochs=6, steps=300)
    assert accuracy > 0.1 + 0.4  # chance is a tenth


def test_lightning() -> None:
    pytest.importorskip("lightning")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on data loaders and logging
        assert main_of("lightning_loop.py")(epochs=12) > 0.9
