"""The doctor finds what is wrong and says what to do; the completion scripts know every command and option."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from robustda import __version__, doctor
from robustda.cli import _COMMANDS, main
from robustda.completion import described, script
from robustda.doctor import examine
from robustda.errors import ConfigError
from robustda.extras import EXTRAS, needs


def test_a_sound_installation_is_well(own_image_cache: Path, capsys: Any) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("all is well\n")
    assert f"robustda      {__version__}" in said
    for word in ("torch ", "device", "tiny run", str(own_image_cache), *(f"extra {name}" for name in EXTRAS)):
        assert word in said


def test_the_size_of_the_cache_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "pixels.raw").write_bytes(bytes(3 << 20))
    monkeypatch.setenv("ROBUSTDA_CACHE", str(tmp_path))
    (found,) = [finding for finding in doctor._cache() if finding.state == "good"]
    assert found.text == f"{tmp_path}, 3.0 MiB in 1 files"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setenv("ROBUSTDA_CACHE", str(tmp_path / "cache"))
    (bad,) = [finding for finding in doctor._cache() if finding.state == "bad"]
    assert "ROBUSTDA_CACHE" in bad.remedy


def test_a_cache_that_cannot_be_written_to_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ROBUSTDA_CACHE", str(tmp_path / "file"))
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "BAD cache" in said
    assert "→ set ROBUSTDA_CACHE to a folder that you may write to" in said
    assert said.endswith("1 problem to mend\n")


def test_little_room_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=5 << 20))
    notes = [finding for finding in doctor._folders() if finding.state == "note"]
    assert [finding.topic for finding in notes] == ["folder", "temporary"]
    assert "5.0 MiB free" in notes[0].text


def test_data_that_are_not_there_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBUSTDA_DATA", "/nowhere/at/all")
    assert [finding.topic for finding in doctor._environment() if finding.state == "bad"] == ["data"]


def test_what_breaks_a_look_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyTorch that cannot even be imported must not end the examination."""
    import sys

    monkeypatch.setitem(sys.modules, "PIL", None)
    found = {finding.topic: finding for finding in examine() if finding.state == "bad"}
    assert "images" in found
    assert "fresh virtual environment" in found["images"].remedy


def test_a_missing_package_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_core", lambda: ["numpy", "no-such-package"])
    (bad,) = [finding for finding in doctor._versions() if finding.state == "bad"]
    assert "not installed: no-such-package" in bad.text


def test_missing_extras_name_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"onnx": (("no-such-package",), "exports")})
    (found,) = doctor._extras()
    assert found.state == "note"
    assert "pip install 'robustda[onnx]'" in found.remedy
    with pytest.raises(ConfigError, match=r"exports needs no_such_module: pip install 'robustda\[onnx\]'"):
        needs("no_such_module", "onnx", "exports")


# completion


def test_every_command_and_option_is_known() -> None:
    found = described(_COMMANDS)
    assert set(found) == set(_COMMANDS)
    fit = found["fit"].options
    assert {"--method", "--source", "--noise_rate", "--mmd_weight", "--checkpointing"} <= set(fit)
    assert fit["--precision"][1] == ("auto", "float32", "bfloat16")
    assert "rda" in fit["--method"][1]
    assert fit["--strict"][1] == ("true", "false")
    assert found["export"].options["--format"][1] == ("onnx", "torch-export", "safetensors")
    for about in found.values():
        assert about.help
        assert "--help" in about.options


def complete(*words: str, folder: Path | None = None) -> list[str]:
    """What bash offers after these words; the last is being typed."""
    array = " ".join(f"'{word}'" for word in ("robustda", *words))
    code = f"{script('bash', _COMMANDS)}\nCOMP_WORDS=({array}); COMP_CWORD={len(words)}; _robustda\n"
    code += "printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=folder, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path: Path) -> None:
    assert complete("pre") == ["predict"]
    assert set(complete("")) == {*_COMMANDS, "--help", "--version"}
    assert complete("fit", "--noise_r") == ["--noise_rate"]
    assert complete("fit", "--method", "pro") == ["prototypes"]
    assert complete("fit", "--method", "=", "pro") == ["prototypes"]
    assert complete("export", "run", "--format", "") == ["onnx", "torch-export", "safetensors"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]
    (tmp_path / "photographs").mkdir()
    assert complete("predict", "pho", folder=tmp_path) == ["photographs"]
    assert complete("fit", "--source", "pho", folder=tmp_path) == ["photographs"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes(tmp_path: Path) -> None:
    (tmp_path / "robustda.fish").write_text(script("fish", _COMMANDS))
    for words, expected in (("pre", "predict"), ("fit --noise_r", "--noise_rate"), ("fit --method pro", "prototypes")):
        code = f"source robustda.fish; complete -C 'robustda {words}'"
        done = subprocess.run(["fish", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
        assert done.stdout.split("\t")[0] == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_sound(shell: str, capsys: Any) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for name in _COMMANDS:
        assert name in text
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} to read the script with")
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_shell_is_one_line(capsys: Any) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "give one of bash, zsh, fish" in capsys.readouterr().err
