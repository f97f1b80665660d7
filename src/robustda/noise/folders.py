"""A noisy copy of an image folder, and the way back."""

from __future__ import annotations

import os
import secrets
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from robustda.data.domain import Domain
from robustda.data.images import ImageFiles, read_image
from robustda.data.parallel import in_order
from robustda.data.wording import plural
from robustda.errors import DataError, RobustDAWarning
from robustda.noise.corrupt import Kind, corrupt
from robustda.noise.recipes import BLUR, BlurSaltPepper
from robustda.noise.record import NoiseRecord

__all__ = ["RECORD", "corrupt_folder", "restore_folder"]

RECORD = "noise.csv"
"""the record's name inside a noisy folder"""

_QUALITY: dict[str, dict[str, Any]] = {
    ".jpg": {"quality": 95, "subsampling": 0},
    ".jpeg": {"quality": 95, "subsampling": 0},
    ".png": {},
    ".webp": {"lossless": True},
    ".bmp": {},
    ".tif": {},
    ".tiff": {},
    ".ppm": {},
}


def corrupt_folder(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    kind: Kind,
    rate: float,
    *,
    seed: int = 0,
    transition: str | npt.ArrayLike = "symmetric",
    blur: float = BLUR,
    progress: bool = False,
) -> NoiseRecord:
    """Write a noisy copy of the image folder ``path`` (one sub-folder a class) as the new folder ``out``.

    A file lies in the folder of its given label. Blurred images are written in their own format where that
    keeps their quality, else as PNG; all others are copied byte for byte. The record is saved inside as
    ``noise.csv``: its ids are the noisy files, and its column ``original`` names the file each came from.
    """
    from PIL import Image

    path, out = Path(path), Path(out)
    if path.resolve() in (out.resolve(), *out.resolve().parents):
        raise DataError(f"{out} lies inside {path} and would become part of it: choose another folder")
    clean = Domain.from_folder(path, labels="required")
    assert isinstance(clean.x, ImageFiles)
    sources = clean.x.paths
    record = corrupt(clean, kind, rate, seed=seed, transition=transition, blur=blur).record
    files = _new_names(record)
    with _new_folder(out) as folder:
        # A class whose every example was given another label stays a class.
        for name in clean.classes.tolist():
            (folder / name).mkdir()

        def write(i: int) -> bool:
            goal = folder / files[i]
            goal.parent.mkdir(parents=True, exist_ok=True)
            if record.corrupted_features[i] and _write_blurred(sources[i], goal, str(record.ids[i]), record):
                return True
            shutil.copyfile(sources[i], goal)
            return False

        Image.init()  # Pillow loads its formats on first use and does not expect threads then
        describe = "Writing images" if progress else None
        blurred = np.array(list(in_order(write, range(len(record)), describe=describe)), dtype=bool)
        unreadable = int((record.corrupted_features & ~blurred).sum())
        extra = {"original": record.ids}
        record = replace(record, ids=np.array(files), corrupted_features=blurred, extra=extra)
        record.save(folder / RECORD)
    if unreadable:
        message = f"{plural(unreadable, 'image')} of {path} cannot be read: copied as they are, not blurred"
        warnings.warn(message, RobustDAWarning, stacklevel=2)
    return record


def restore_folder(
    noisy: str | os.PathLike[str],
    original: str | os.PathLike[str] | None,
    out: str | os.PathLike[str],
    *,
    progress: bool = False,
) -> None:
    """Rebuild as ``out`` the clean folder that ``corrupt_folder`` made ``noisy`` from.

    Only what the noise destroyed is taken from the ``original`` folder: the images that were blurred. It may
    be None when there are none.
    """
    noisy, out = Path(noisy), Path(out)
    record = NoiseRecord.load(noisy / RECORD)
    if "original" not in record.extra:
        raise DataError(f"{noisy / RECORD} has no column 'original': give a folder made by corrupt_folder")
    goals = record.extra["original"].tolist()
    sources = {goal: str(noisy / file) for goal, file in zip(goals, record.ids.tolist(), strict=True)}
    if lost := [goal for goal, blurred in zip(goals, record.corrupted_features, strict=True) if blurred]:
        if original is None:
            raise DataError(f"{plural(len(lost), 'image')} of {noisy} are blurred: give the original folder")
        clean = Domain.from_folder(Path(original), labels="required")
        assert isinstance(clean.x, ImageFiles)
        kept = dict(zip(clean.ids.tolist(), clean.x.paths, strict=True))
        if missing := [goal for goal in lost if goal not in kept]:
            raise DataError(f"{original} lacks {missing[0]}, blurred in {noisy}: give the original folder")
        sources |= {goal: kept[goal] for goal in lost}
    if outside := [goal for goal in goals if ".." in Path(goal).parts or Path(goal).is_absolute()]:
        raise DataError(f"{noisy / RECORD} names {outside[0]!r}, which lies outside the folder: mend it")
    with _new_folder(out) as folder:
        for entry in noisy.iterdir():
            if entry.is_dir():
                (folder / entry.name).mkdir()

        def write(goal: str) -> None:
            (folder / goal).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(sources[goal], folder / goal)

        describe = "Copying images" if progress else None
        for _ in in_order(write, goals, describe=describe):
            pass


def _new_names(record: NoiseRecord) -> list[str]:
    """Where each file lands: in its given label's folder, under its own name where that is free."""
    originals = record.ids.tolist()
    wanted = []
    rows = zip(originals, record.labels, record.given_labels, record.corrupted_features, strict=True)
    for name, label, given, blurred in rows:
        goal = PurePosixPath(str(given)) / PurePosixPath(name).relative_to(str(label))
        if blurred and goal.suffix.lower() not in _QUALITY:
            goal = goal.with_suffix(".png")
        wanted.append(goal)
    # Files that stay choose first; and names that differ in case alone would be one file on some systems.
    stays = [str(goal) == name for goal, name in zip(wanted, originals, strict=True)]
    taken = {name.casefold() for name, stay in zip(originals, stays, strict=True) if stay}
    numbers: dict[str, int] = {}
    names = []
    for goal, stay in zip(wanted, stays, strict=True):
        name = str(goal)
        while not stay and name.casefold() in taken:
            number = numbers[str(goal)] = numbers.get(str(goal), 1) + 1
            name = str(goal.with_name(f"{goal.stem}-{number}{goal.suffix}"))
        taken.add(name.casefold())
        names.append(name)
    return names


def _write_blurred(source: str, goal: Path, identity: str, record: NoiseRecord) -> bool:
    """Write the corrupted image; False if it cannot be read."""
    from PIL import Image

    try:
        image = read_image(source)
    except DataError:
        return False
    image = BlurSaltPepper.of(record.seed, identity, record.blur)(image)
    Image.fromarray(image).save(goal, **_QUALITY[goal.suffix.lower()])
    return True


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which takes the name ``out`` only once it is whole, and goes if that fails."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} exists and is not an empty folder: choose a new one, or remove it")
    folder = out.with_name(f".{out.name}.{secrets.token_hex(4)}.part")
    try:
        folder.mkdir(parents=True)
        yield folder
        if out.exists():
            out.rmdir()
        folder.rename(out)
    except OSError as error:
        name = error.filename or out
        raise DataError(f"cannot write {out} ({name}: {error.strerror}): nothing was left there") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
