"""Data elsewhere: s3://, gs://, https://, memory:// and whatever else fsspec knows, mirrored into the cache folder.

Only what has changed is fetched again, and a file appears whole or not at all. From there on the data are local.

<cache>/remote/<digest of the address>/...    the files, under the names they have there
<cache>/remote/<digest of the address>.json   what each was like when it was fetched
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from robustda.data.cache import cache_folder
from robustda.data.images import image_extensions
from robustda.data.mapped import companions
from robustda.data.parallel import in_order
from robustda.data.tables import TABLE_ENDINGS, listed_paths
from robustda.errors import DataError
from robustda.extras import needs

__all__ = ["fetch", "is_remote"]


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether this is an address and not a path; file:// counts, since fsspec reads that too."""
    return re.match(r"[A-Za-z][\w+.-]+(::|://)", os.fspath(path)) is not None


def fetch(url: str, *, path_column: str | None = None, cache_dir: str | Path | None = None) -> Path:
    """A local copy: of the images below a folder, of a table and the images it lists, or of another file."""
    fsspec = needs("fsspec", "fsspec", f"the address {url}")
    try:
        system, top = fsspec.core.url_to_fs(url)
        top = top.rstrip("/")
        if system.isdir(top):
            names = [name for name in _below(system, top) if PurePosixPath(name).suffix.lower() in image_extensions()]
            if not names:
                raise DataError(f"no images in {url}: nothing there ends in .jpg, .png or another of Pillow's endings")
            return _Mirror(url, system, top, cache_dir).fetch(names, only=True)
        if not system.exists(top):
            raise DataError(f"there is nothing at {url}: check the address")
        folder, _, name = top.rpartition("/")
        mirror = _Mirror(url.rstrip("/").rpartition("/")[0], system, folder, cache_dir)
        local: Path = mirror.fetch([name]) / name
        if name.lower().endswith(TABLE_ENDINGS):
            mirror.fetch(_relative(listed_paths(local, path_column), url))
        if name.lower().endswith(".npy"):
            beside = [other.name for other in companions(local).values()]
            mirror.fetch(other for other in beside if system.exists(f"{folder}/{other}"))
        return local
    except DataError:
        raise
    except Exception as error:  # every file system of fsspec raises errors of its own
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{url} cannot be read ({reason}): check the address, and that you may read it") from error


class _Mirror:
    """A folder elsewhere and its copy here."""

    def __init__(self, url: str, system: Any, top: str, cache_dir: str | Path | None) -> None:
        digest = hashlib.blake2b(url.encode(), digest_size=16).hexdigest()
        self.url, self.system, self.top = url, system, top
        self.folder = cache_folder(cache_dir) / "remote" / digest
        self._index = self.folder.with_suffix(".json")

    def fetch(self, names: Iterable[str], *, only: bool = False) -> Path:
        """Have these files here as they are there; with `only`, no others."""
        names = list(names)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            known = self._known()
            for name, key in zip(names, in_order(lambda name: self._one(name, known), names), strict=True):
                known[name] = key
            for name in set(known) - set(names) if only else ():
                (self.folder / name).unlink(missing_ok=True)
                del known[name]
            own = self._index.with_name(f".{uuid.uuid4().hex}")
            own.write_text(json.dumps(known), encoding="utf-8")
            os.replace(own, self._index)
        except PermissionError as error:
            raise DataError(
                f"cannot write to {self.folder} ({error.strerror}): set ROBUSTDA_CACHE to a folder you may write to"
            ) from error
        return self.folder

    def _one(self, name: str, known: dict[str, str]) -> str:
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or "\\" in name:
            raise DataError(f"{self.url}: the name {name!r} leads out of its folder: it is not fetched")
        there, here = f"{self.top}/{name}" if self.top else name, self.folder / name
        key = str(self.system.ukey(there))
        if known.get(name) == key and here.is_file():
            return key
        here.parent.mkdir(parents=True, exist_ok=True)
        own = here.with_name(f".{uuid.uuid4().hex}")
        try:
            self.system.get_file(there, str(own))
            os.replace(own, here)
        finally:
            own.unlink(missing_ok=True)
        return key

    def _known(self) -> dict[str, str]:
        try:
            found = json.loads(self._index.read_text(encoding="utf-8"))
            return {str(name): str(key) for name, key in found.items()}
        except (OSError, ValueError, AttributeError):
            return {}


def _below(system: Any, top: str) -> list[str]:
    names = [str(name)[len(top) :].lstrip("/") for name in system.find(top)]
    return sorted(name for name in names if not any(part.startswith(".") for part in name.split("/")))


def _relative(paths: list[str], url: str) -> list[str]:
    for path in paths:
        if is_remote(path) or path.startswith("/"):
            raise DataError(f"{url} lists {path!r}: the paths in a table elsewhere must be relative to its folder")
    return [str(PurePosixPath(path)) for path in dict.fromkeys(paths)]
