"""The code in the README and the docs is run as it stands there, page by page, as one reader would.

Blocks of `python` and `bash` are run in order. One that cannot be is marked ``<!-- not run: why -->``, and is still
checked: options of robustda must exist, scripts and make targets too. Blocks of `text` are what is printed or typed
elsewhere.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import robustda
import robustda.train
from conftest import make_folders
from robustda.cli import _COMMANDS, main
from robustda.commands.parsing import parser_of
from robustda.data.domain import Domain
from robustda.methods import registry
from robustda.methods.options import options

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *DOCS.rglob("*.md")] if "_build" not in path.parts
)

NEEDS = {  # what a page is about is an extra
    "docs/export.md": ("onnx", "onnxscript", "onnxruntime"),
    "docs/your-data.md": ("fsspec",),
    "docs/tuning-and-tracking.md": ("optuna",),
}
IN_FULL = ("docs/faq.md", "docs/paper.md", "docs/tutorial.md")  # elsewhere a fit is told to be brief
SHORTER = {"docs/tuning-and-tracking.md": {"--trials 20": "--trials 2", "trials=14": "trials=2"}}


class Block(NamedTuple):
    """A fenced block, and why it is not run, if so."""

    language: str
    text: str
    why_not: str


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for long, short in SHORTER.get(page, {}).items():
        assert long in text
        text = text.replace(long, short)
    found = re.findall(r"(?:^<!-- not run: (.+?) -->\n)?^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(language, body, why_not) for why_not, language, body in found]


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a shell block, as words."""
    for line in text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


RUNNABLE = [page for page in PAGES if any(block.language in ("python", "bash") for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_of_known_kinds(page: str) -> None:
    """So that no code stands there that is never looked at."""
    assert [b.language for b in blocks(page) if not re.fullmatch(r"python|bash|text|\{[\w-]+\}.*", b.language)] == []
    prose = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"\n\n    .*", prose) == [], "indented code: put it between ```bash and ```"


@pytest.mark.filterwarnings("ignore::robustda.errors.RobustDAWarning")  # five steps on a dozen images may well earn one
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page == "docs/tutorial.md")) for page in RUNNABLE]
)
def test_page(page: str, reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module, reason=f"{module} is not installed; {page} is about it")
    if page not in IN_FULL:
        monkeypatch.setattr(robustda.train, "fit", brief(robustda.train.fit))
    monkeypatch.setattr(
        registry, "_REGISTRY", dict(registry._REGISTRY)
    )  # other tests are not to meet what a page registers
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    vars(module).update(given(reader))
    for block in blocks(page):
        if block.language == "python" and not block.why_not:
            exec(compile(block.text, page, "exec"), vars(module))
        elif block.language == "bash":
            for words in commands(block.text):
                (check if block.why_not else run)(words)
    if page in OUTCOMES:
        OUTCOMES[page](reader, capsys.readouterr().out)


def run(words: list[str]) -> None:
    if words[0] != "robustda":
        check(words)
        assert words[0] == "pip", f"{words[0]} is not run: say why in a comment before the block"
        return
    assert main(words[1:]) == 0 or words[1] == "doctor", words  # which may find fault with the machine


def check(words: list[str]) -> None:
    """What can be said about a command without running it."""
    program, *arguments = words
    if "robustda.cli" in arguments or program == "srun":  # a launcher
        arguments = arguments[(arguments.index("robustda.cli" if "robustda.cli" in arguments else "robustda")) + 1 :]
        program = "robustda"
    if program == "robustda":
        assert arguments[0] in _COMMANDS
        parser_of(_COMMANDS[arguments[0]], arguments[1:]).parse_args(arguments[1:])
    elif program == "python":
        script = (ROOT / arguments[0]).read_text(encoding="utf-8")
        assert [flag for flag in arguments if flag.startswith("--") and f'"{flag}"' not in script] == []
    elif program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert set(arguments) <= set(targets)
    elif program == "pytest":
        assert (ROOT / arguments[0]).is_file()
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
        assert set(re.findall(r"\[(\w+)\]", " ".join(arguments))) <= set(extras)
    else:
        assert program == "if", f"nothing is known about {program}"


def brief(fit: Callable[..., None]) -> Callable[..., None]:
    """A page shows settings for real data; on the tests' few images a handful of steps will do."""

    def short(method: Any, *data: Domain, **options: Any) -> None:
        method.steps, method.width = min(method.steps, 5), min(method.width, 16)
        if hasattr(method, "epochs"):
            method.epochs = 1
        fit(method, *data, **options | {"progress": False})

    return short


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files that the pages speak of, here and at memory://bucket."""
    made = make_folders(tmp_path)
    shutil.copytree(made.target / "ant", tmp_path / "new-images")
    shutil.copytree(made.source, tmp_path / "clean")
    images = sorted(file for file in made.source.rglob("*.*"))
    lines = [{"path": str(file.relative_to(tmp_path)), "label": file.parent.name} for file in images]
    (tmp_path / "web.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "list.txt").write_text("\n".join(f"camera/{name}" for name in ("ant/0.png", "bee/1.jpg")))
    decided = pd.DataFrame({"id": Domain.from_folder(made.source).ids[:2], "decision": ["keep", "drop"], "label": ""})
    decided.to_csv(tmp_path / "decisions.csv", index=False)
    monkeypatch.chdir(tmp_path)
    if importlib.util.find_spec("fsspec") is None:
        yield tmp_path
        return
    import fsspec

    memory = fsspec.filesystem("memory")
    for file in images:
        memory.pipe(f"/bucket/web/{file.relative_to(made.source)}", file.read_bytes())
    yield tmp_path
    memory.rm("/bucket", recursive=True)


def given(place: Path) -> dict[str, Any]:
    """What a page takes for granted: vectors, and the runs that it compares."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = (3 * np.eye(3)[y] + rng.normal(size=(90, 3))).astype(np.float32)
    probabilities = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    known = {"X": x, "y": y, "X_camera": x + 0.5, "features": x, "labels": y, "target_features": x + 0.5}
    return known | {"probabilities": probabilities}


def after_exporting(reader: Path, printed: str) -> None:
    assert (reader / "exports" / "a" / "model.onnx").is_file()
    assert (reader / "exports" / "b" / "MODEL_CARD.md").is_file()
    assert (reader / "predictions.parquet").is_file()


def after_tutorial(reader: Path, printed: str) -> None:
    """It says what really happens: the words, and about the numbers."""
    accuracy = {
        name: json.loads((reader / "runs" / name / "summary.json").read_text())["target_accuracy"]
        for name in ("plain", "mended", "rda")
    }
    assert accuracy["plain"] < 0.65
    assert accuracy["plain"] < accuracy["mended"] < 0.75
    assert accuracy["rda"] > 0.75
    heard = masked(printed)
    told = [block.text for block in blocks("docs/tutorial.md") if block.language == "text"]
    assert [paragraph for text in told for paragraph in text.split("\n\n") if masked(paragraph) not in heard] == []


def masked(text: str) -> str:
    return " ".join(re.sub(r"\d[\d.,]*", "#", text).split())


OUTCOMES = {"docs/export.md": after_exporting, "docs/tutorial.md": after_tutorial}


def test_adding_a_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk-through's method: forty lines at most, found by name, trains, and is loaded again."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "adding-a-method.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(code.splitlines()) <= 40
    path = tmp_path / "coral.py"
    path.write_text(code, encoding="utf-8")
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))  # other tests are not to meet it
    spec = importlib.util.spec_from_file_location("coral", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "coral", module)
    spec.loader.exec_module(module)

    assert "coral" in registry.method_names()
    assert all(option.help for option in options(registry.method_class("coral")))
    rng = np.random.default_rng(0)
    labels = np.array(["left", "right"])[np.arange(120) % 2]
    x = (2 * rng.normal(size=(2, 12)))[np.arange(120) % 2] + rng.normal(size=(120, 12))
    source = Domain.from_arrays(x.astype(np.float32), labels)
    target = Domain.from_arrays((1.3 * x + 0.5).astype(np.float32), labels)
    method = registry.create_method("coral", width=16, steps=80, learning_rate=0.02, coral_weight=0.5)
    method.fit(source, target, out=tmp_path / "run", device="cpu", progress=False, tensorboard=False)
    assert method.summary_["target_accuracy"] > 0.9
    assert "coral" in set(method.history_.metric)
    loaded = robustda.load(tmp_path / "run", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(target), method.predict_proba(target))


def averages(noise: str) -> dict[str, str]:
    """Each method's average over the six tasks, as results/ has it."""
    table = (ROOT / "results" / "tables" / "features" / "table1.md").read_text(encoding="utf-8")
    part = table[table.index(f"{noise} average") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()[2:]]
    return {row[0]: row[-1].split()[0] for row in rows}


@pytest.mark.parametrize(("noise", "kind"), [("label", "wrong labels"), ("feature", "right labels"), ("mixed", "both")])
def test_numbers_are_those_of_the_results(noise: str, kind: str) -> None:
    """The README's table, and the guide that is built on it."""
    found = averages(noise)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = {"source only": "source_only", "RDA, noise rates given": "rda, rates given"}
    column = 1 + ["label", "feature", "mixed"].index(noise)
    rows = [line for line in readme[readme.index("**Ten methods") :].splitlines() if line.startswith("|")][2:16]
    told = {}
    for row in rows:
        cells = [cell.strip().strip("*") for cell in row.strip("|").split("|")]
        told[named.get(cells[0], cells[0].lower())] = cells[column].split()[0].strip("*")
    assert told == found
    guide = (DOCS / "choosing.md").read_text(encoding="utf-8")
    (line,) = [line for line in guide.splitlines() if re.match(rf"\| [\w ,]*{kind} \|", line)]
    assert [
        name for name in ("clarity", "concord", "rda", "prototypes", "mdd", "source_only") if found[name] not in line
    ] == []
    if noise == "label":
        front = " ".join((DOCS / "index.md").read_text(encoding="utf-8").split())
        told = re.search(
            r"source only (\S+) %, .* noise (\S+) %, RDA (\S+) %, \[clarity\]\(clarity.md\) (\S+) %", front
        )
        assert told is not None
        assert list(told.groups()) == [found[name] for name in ("source_only", "mdd", "rda", "clarity")]
