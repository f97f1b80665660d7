"""The code in the docs is run as it stands there."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import robustda
from robustda.data.domain import Domain
from robustda.methods import base
from robustda.methods.options import options

DOCS = Path(__file__).parents[1] / "docs"


def test_adding_a_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk-through's method: under forty lines, found by name, trains, and is loaded again."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "adding-a-method.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(code.splitlines()) < 40
    path = tmp_path / "coral.py"
    path.write_text(code, encoding="utf-8")
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))  # other tests are not to meet it
    spec = importlib.util.spec_from_file_location("coral", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "coral", module)
    spec.loader.exec_module(module)

    assert "coral" in base.method_names()
    assert all(option.help for option in options(base.method_class("coral")))
    rng = np.random.default_rng(0)
    labels = np.array(["left", "right"])[np.arange(120) % 2]
    x = (2 * rng.normal(size=(2, 12)))[np.arange(120) % 2] + rng.normal(size=(120, 12))
    source = Domain.from_arrays(x.astype(np.float32), labels)
    target = Domain.from_arrays((1.3 * x + 0.5).astype(np.float32), labels)
    method = base.create_method("coral", width=16, steps=80, learning_rate=0.02, coral_weight=0.5)
    method.fit(source, target, out=tmp_path / "run", device="cpu", progress=False, tensorboard=False)
    assert method.summary_["target_accuracy"] > 0.9
    assert "coral" in set(method.history_.metric)
    loaded = robustda.load(tmp_path / "run", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(target), method.predict_proba(target))
