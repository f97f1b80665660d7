"""The code in the docs is run as it stands there."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import robustda
from conftest import make_folders
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


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of each block of a page, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(python|bash)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def run_page(page: str) -> None:
    """Every block of a page in turn, as one reader would; a fit is told to be brief."""
    from robustda.cli import main

    known: dict[str, object] = {}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), known)
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "robustda"
            if arguments[0] == "fit":
                arguments += ["--steps=5", "--width=8", "--device=cpu", "--progress=false"]
                arguments += ["--epochs=1", "--noise_rate=0.2"] if "--method" not in arguments else []
            assert main(arguments) == 0, line


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the pages speak of."""
    made = make_folders(tmp_path)
    shutil.copytree(made.target / "ant", tmp_path / "new-images")
    images = sorted(file for file in made.source.rglob("*.*"))
    lines = [{"path": str(file.relative_to(tmp_path)), "label": file.parent.name} for file in images]
    (tmp_path / "web.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "list.txt").write_text("\n".join(f"camera/{name}" for name in ("ant/0.png", "bee/1.jpg")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_exporting(reader: Path) -> None:
    for module in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(module, reason=f"{module} is not installed (pip install 'robustda[onnx]')")
    run_page("export.md")
    assert (reader / "exports" / "a" / "model.onnx").is_file()
    assert (reader / "exports" / "b" / "MODEL_CARD.md").is_file()
    assert (reader / "predictions.parquet").is_file()


def test_your_data(reader: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (pip install 'robustda[fsspec]')")
    memory = fsspec.filesystem("memory")
    for file in (reader / "web").rglob("*.*"):
        memory.pipe(f"/bucket/web/{file.relative_to(reader / 'web')}", file.read_bytes())
    run_page("your-data.md")
    memory.rm("/bucket", recursive=True)
    assert (reader / "predictions.csv").is_file()
