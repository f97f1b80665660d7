"""What may be wrong with an installation: versions, device, folders, extras; each problem with its remedy.

Nothing is sent anywhere, and nothing is changed but for a file that is written to each folder and removed again.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from robustda._version import __version__
from robustda.extras import EXTRAS

__all__ = ["Finding", "examine"]

State = Literal["good", "note", "bad"]
_LOW_SPACE = 2 << 30


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    topic: str
    state: State
    text: str
    remedy: str = ""
    """what to do about it; empty where all is well"""


def examine() -> Iterator[Finding]:
    """Look at everything in turn. What cannot even be looked at is a finding, too."""
    looks: list[Callable[[], Iterator[Finding]]] = [
        _versions,
        _device,
        _threads,
        _images,
        _cache,
        _folders,
        _environment,
        _tiny_run,
        _extras,
    ]
    for look in looks:
        try:
            yield from look()
        except Exception as error:  # a broken installation breaks in ways of its own: that is what this is for
            reason = " ".join(str(error).split()) or type(error).__name__
            remedy = "install robustda anew into a fresh virtual environment"
            yield Finding(look.__name__.strip("_").replace("_", " "), "bad", reason, remedy)


def _versions() -> Iterator[Finding]:
    yield Finding("robustda", "good", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    found, missing = [], []
    for name in _core():
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    yield Finding("packages", "good", ", ".join(found))
    if missing:
        yield Finding("packages", "bad", f"not installed: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    for name, needed, there in _too_old():
        yield Finding("packages", "bad", f"{name} {there}, but {needed} is needed", f"pip install '{name}{needed}'")


def _core() -> list[str]:
    """The packages that robustda cannot do without."""
    names = ["jsonargparse", "matplotlib", "numpy", "pandas", "pillow", "pyarrow", "rich", "safetensors"]
    return [*names, "scikit-learn", "tensorboard", "threadpoolctl", "timm", "torch", "torchvision"]


def _too_old() -> Iterator[tuple[str, str, str]]:
    """Name, what is needed and what is there, of packages outside the range that robustda was made for."""
    try:
        from packaging.requirements import Requirement

        wanted = [Requirement(line) for line in importlib.metadata.requires("robustda") or ()]
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return  # run from a source tree: there is no list to compare with
    for one in wanted:
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        try:
            there = importlib.metadata.version(one.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if not one.specifier.contains(there, prereleases=True):
            yield one.name, str(one.specifier), there


def _device() -> Iterator[Finding]:
    import torch

    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            name = torch.cuda.get_device_name(number)
            yield Finding(
                "device", "good", f"{name}, {_size(free)} of {_size(total)} free (PyTorch {torch.__version__})"
            )
        return
    yield Finding("device", "good", f"CPU, {platform.machine()} (PyTorch {torch.__version__})")
    if shutil.which("nvidia-smi"):
        if torch.version.cuda is None:
            remedy = "install a build of PyTorch with CUDA: see the selector on pytorch.org"
            yield Finding("device", "note", "there is an NVIDIA driver, but this PyTorch is for CPUs only", remedy)
        else:
            remedy = f"update the NVIDIA driver to one for CUDA {torch.version.cuda}, and check CUDA_VISIBLE_DEVICES"
            yield Finding("device", "note", "there is an NVIDIA driver, but PyTorch cannot use it", remedy)


def _threads() -> Iterator[Finding]:
    import torch

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    used = torch.get_num_threads()
    text = f"{used} of {usable} cores"
    if used > usable:
        yield Finding("threads", "note", text, f"more threads than cores slow it down: fit --threads {usable}")
    elif used == 1 and usable > 2 and os.environ.get("OMP_NUM_THREADS") == "1":
        yield Finding(
            "threads", "note", f"{text}, since OMP_NUM_THREADS is 1", "unset OMP_NUM_THREADS, or fit --threads"
        )
    else:
        yield Finding("threads", "good", text)


def _images() -> Iterator[Finding]:
    from PIL import features

    kinds = {"JPEG": "jpg", "PNG": "zlib", "WebP": "webp", "TIFF": "libtiff"}
    there = [kind for kind, name in kinds.items() if features.check(name)]
    lacking = [kind for kind in kinds if kind not in there]
    yield Finding("images", "good", f"Pillow reads {', '.join(there)}")
    if lacking:
        remedy = "pip install --force-reinstall pillow, which comes with them"
        yield Finding("images", "bad", f"Pillow cannot read {', '.join(lacking)}", remedy)


def _cache() -> Iterator[Finding]:
    from robustda.data.cache import cache_folder

    folder = cache_folder()
    size, count = 0, 0
    for top, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(top, name)).st_size
                count += 1
            except OSError:
                continue
    yield Finding("cache", "good", f"{folder}, {_size(size)} in {count:,} files")
    yield from _writable("cache", folder, "set ROBUSTDA_CACHE to a folder that you may write to")
    if size > 50 << 30:
        remedy = f"delete {folder}: it is filled again as needed"
        yield Finding("cache", "note", f"it takes up {_size(size)}", remedy)


def _folders() -> Iterator[Finding]:
    here = Path.cwd()
    yield from _writable("folder", here, "give --out a folder that you may write to", said=f"{here}")
    temporary = Path(tempfile.gettempdir())
    yield from _writable("temporary", temporary, "set TMPDIR to a folder that you may write to", said=f"{temporary}")


def _writable(topic: str, folder: Path, remedy: str, said: str = "") -> Iterator[Finding]:
    """Whether a folder, or the nearest one above it that is there, can be written to, and has room."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=there) as file:
            file.write(b"robustda")
    except OSError as error:
        yield Finding(topic, "bad", f"cannot write to {there} ({error.strerror})", remedy)
        return
    free = shutil.disk_usage(there).free
    if free < _LOW_SPACE:
        yield Finding(topic, "note", f"{_size(free)} free in {there}", f"make room, or {remedy}")
    elif said:
        yield Finding(topic, "good", f"{said} can be written to, {_size(free)} free")


def _environment() -> Iterator[Finding]:
    encoding = getattr(sys.stdout, "encoding", "") or "none"
    if encoding.lower().replace("-", "") != "utf8":
        yield Finding("terminal", "note", f"its encoding is {encoding}: some signs may not show", "set PYTHONUTF8=1")
    data = os.environ.get("ROBUSTDA_DATA")
    if data and not Path(data).is_dir():
        remedy = "set it to the folder with the benchmark data, or unset it"
        yield Finding("data", "bad", f"ROBUSTDA_DATA is {data}, where there is no folder", remedy)


def _tiny_run() -> Iterator[Finding]:
    """Everything at once, on the device that a fit would take: three steps of RDA on random vectors."""
    import numpy as np

    from robustda.data.domain import Domain
    from robustda.methods import create_method

    started = time.monotonic()
    rng = np.random.default_rng(0)
    names = np.arange(60) % 3
    x = rng.normal(size=(60, 4)).astype(np.float32) + 5 * names[:, None]
    source, target = Domain.from_arrays(x, names, name="x"), Domain.from_arrays(x + 0.1, name="y")
    method = create_method("rda", steps=3, epochs=1, width=8, noise_rate=0.1)
    with tempfile.TemporaryDirectory() as folder:
        method.fit(source, target, out=Path(folder) / "run", progress=False, tensorboard=True)
    if not np.isfinite(method.predict_proba(target)).all():
        yield Finding("tiny run", "bad", "its predictions are not finite", "reinstall PyTorch for this machine")
        return
    yield Finding("tiny run", "good", f"a fit of three steps went well, in {time.monotonic() - started:.1f} s")


def _extras() -> Iterator[Finding]:
    for extra, (modules, purpose) in EXTRAS.items():
        found = {name: _version(name) for name in modules}
        missing = [name for name, version in found.items() if version is None]
        if missing:
            text = f"{purpose}: not installed ({', '.join(missing)})"
            yield Finding(f"extra {extra}", "note", text, f"if you need it: pip install 'robustda[{extra}]'")
        else:
            there = ", ".join(f"{name} {version}" for name, version in found.items())
            yield Finding(f"extra {extra}", "good", f"{purpose}: {there}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
