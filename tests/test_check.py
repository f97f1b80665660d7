"""Copies of the paper's data sets: what is missing is said."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robustda.cli import main
from robustda.data.check import check_dataset
from robustda.errors import ConfigError, DataError


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Office-31 with two images a class: the right classes, far too few images."""
    for domain in ("amazon", "dslr", "webcam"):
        for number in range(31):
            folder = tmp_path / "office" / domain / f"class_{number:02d}"
            folder.mkdir(parents=True)
            for image in range(2):
                Image.fromarray(np.full((4, 4, 3), number, dtype=np.uint8)).save(folder / f"{image}.png")
    return tmp_path / "office"


def problems(path: Path) -> dict[str, str]:
    return {check.name: "; ".join(check.problems) for check in check_dataset("office31", path)}


def test_what_is_missing_is_said(copy: Path) -> None:
    assert problems(copy)["dslr"] == "62 images, 498 expected"
    (copy / "dslr" / "class_03").rename(copy / "dslr" / "klass_03")
    (copy / "webcam" / "class_00" / "0.png").write_bytes(b"no image")
    for file in (copy / "amazon" / "class_01").iterdir():
        file.unlink()
    found = problems(copy)
    assert "classes that not every domain has: 'klass_03'" in found["dslr"]
    assert "1 images cannot be read: 'class_00/0.png" in found["webcam"]
    assert "no images in 'class_01'" in found["amazon"]


def test_folders_go_by_many_names(copy: Path) -> None:
    (copy / "dslr").rename(copy / "DSLR")
    (copy / "amazon").rename(copy / "a")
    (copy / "a").rename(copy / "tmp")
    (copy / "amazon").mkdir()
    (copy / "tmp").rename(copy / "amazon" / "images")
    checks = check_dataset("office-31", copy, read=False)
    assert [check.images for check in checks] == [62, 62, 62]


def test_a_missing_domain_and_a_missing_folder(copy: Path, tmp_path: Path) -> None:
    (copy / "dslr").rename(copy / "elsewhere")
    assert "there is no folder dslr" in problems(copy)["dslr"]
    with pytest.raises(DataError, match=r"there is no folder .*Saenko"):
        check_dataset("office31", tmp_path / "nothing")
    with pytest.raises(ConfigError, match="unknown data set"):
        check_dataset("office32", copy)


def test_the_command(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "office31", str(copy)]) == 1
    printed = capsys.readouterr().out
    assert "amazon" in printed
    assert "62 images, 2,817 expected" in printed
    assert main(["data", "look", "office31", str(copy)]) == 2


@pytest.mark.skipif(not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with Office-31")
def test_office31_is_whole() -> None:
    checks = check_dataset("office31", Path(os.environ["ROBUSTDA_DATA"]) / "office31", read=False)
    assert [(check.images, check.problems) for check in checks] == [(2817, ()), (498, ()), (795, ())]
