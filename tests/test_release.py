"""What is released: a wheel that holds what it needs and nothing else, and files that agree with each other."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from robustda import __version__
from robustda.doctor import _core
from robustda.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree, by the setuptools that is installed: nothing is fetched."""
    try:
        major = int(importlib.metadata.version("setuptools").partition(".")[0])
    except importlib.metadata.PackageNotFoundError:
        major = 0
    if major < 77:
        pytest.skip("setuptools 77 or newer is not installed")
    place = tmp_path_factory.mktemp("release")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / name)
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    code = "import setuptools.build_meta as b; print(b.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = (place / "dist").glob("*.whl")
    return found


def names_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    package = ROOT / "src" / "robustda"
    files = {file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    expected = {str(file.relative_to(ROOT / "src")) for file in files}
    found = names_of(wheel)
    about = {name for name in found if ".dist-info/" in name}
    assert found - about == expected
    assert {Path(name).name for name in about} == {
        "METADATA",
        "WHEEL",
        "RECORD",
        "LICENSE",
        "entry_points.txt",
        "top_level.txt",
    }
    kinds = {Path(name).suffix for name in expected} - {".py"}
    assert kinds <= {".typed", ".html", ".css", ".js", ".svg", ".json"}, "what else is in the package?"
    assert wheel.name.startswith(f"robustda-{__version__}-py3-none-any")


def test_the_wheel_runs_by_itself(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, with nothing of this tree on the path: the page's templates must be in it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    np.savez(tmp_path / "x.npz", x=(rng.normal(size=(60, 4)) + 4 * y[:, None]).astype(np.float32), y=y)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "robustda.cli", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = [sys.executable, "-c", "import robustda; print(robustda.__file__)"]
    said = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert said.startswith(str(tmp_path / "site"))
    assert run("--version") == f"robustda {__version__}\n"
    assert "tiny run" in run("doctor")
    run("audit", "x.npz", "--out", "audit")
    assert "<html" in (tmp_path / "audit" / "audit.html").read_text(encoding="utf-8")


def test_metadata_says_what_people_look_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode()
        (scripts,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        assert "robustda = robustda.cli:main" in archive.read(scripts).decode()
    assert f"Version: {__version__}" in text
    assert "License-Expression: Apache-2.0" in text
    assert "Requires-Python: >=3.11" in text
    for extra in EXTRAS:
        assert f"Provides-Extra: {extra}" in text


def bare(requirement: str) -> str:
    return re.split(r"[<>=!~\[ ;]", requirement)[0].lower()


def test_the_doctor_knows_the_dependencies() -> None:
    assert {bare(line) for line in PROJECT["project"]["dependencies"]} == set(_core())


def test_the_extras_are_those_that_messages_name() -> None:
    offered = PROJECT["project"]["optional-dependencies"]
    for extra, (modules, _) in EXTRAS.items():
        packages = {bare(line) for line in offered[extra]}
        if extra == "mlflow":  # the package of that module has another name, and needs two more for its own store
            packages = {"mlflow"} if "mlflow-skinny" in packages else packages
        assert packages == set(modules)
    named = set()
    for file in (ROOT / "src").rglob("*.py"):
        named |= set(re.findall(r"robustda\[(\w+)\]", file.read_text(encoding="utf-8")))
    assert named <= set(offered)


def test_versions_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == __version__
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__


def test_the_citation_has_what_a_citation_needs() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Han", "Gui", "Cui", "Yin"]
    assert paper["year"] == 2020


def test_pre_commit_runs_the_projects_own_tools() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    linters = {bare(line) for line in PROJECT["project"]["optional-dependencies"]["lint"]}
    assert {hook["entry"].split()[0] for hook in hooks} <= linters


def test_links_in_the_papers_of_the_project_lead_somewhere() -> None:
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/export.md", "docs/your-data.md"):
        page = ROOT / name
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{name}: {link}"


def test_the_bill_of_materials_is_whole_and_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CycloneDX: every pinned package with its version, every need of robustda, and references that lead somewhere."""
    pytest.importorskip("packaging")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(sys, "argv", ["sbom.py", "--out", str(tmp_path / "sub" / "bom.json")])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")
    made = []
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "tools" / "sbom.py"), run_name="__main__")
        assert not ended.value.code
        made.append((tmp_path / "sub" / "bom.json").read_text(encoding="utf-8"))
    assert made[0] == made[1], "the same packages give the same file"
    bill = json.loads(made[0])
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill["metadata"]["timestamp"] == "2020-09-13T12:26:40Z"
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"]) == ("robustda", __version__)
    parts = {part["name"]: part for part in bill["components"]}
    assert len(parts) == len(bill["components"])
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split("\n")
    for name, _, version in (line.partition("==") for line in lines if "==" in line):
        assert parts[re.sub(r"[-_.]+", "-", name).lower()]["version"] == version
    assert all(part["purl"] == f"pkg:pypi/{name}@{part['version']}" for name, part in parts.items())
    refs = {own["bom-ref"], *(part["bom-ref"] for part in parts.values())}
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert needs.keys() == refs
    assert {ref for found in needs.values() for ref in found} <= refs
    direct = {re.match(r"[\w-]+", line).group().lower() for line in PROJECT["project"]["dependencies"]}  # type: ignore[union-attr]
    assert direct <= {ref.removeprefix("pkg:pypi/").partition("@")[0] for ref in needs[own["bom-ref"]]}
    assert all(parts[name]["scope"] == "required" for name in direct)
    assert parts["pytest"]["scope"] == "excluded"
    assert parts["torch"]["licenses"], "what is installed has a licence"
