"""Loaders fed with damaged files: each must read them or refuse them by an error of its own, and never crash or hang.

``make fuzz`` makes a million of them; tests/test_fuzz.py some thousands. Files of tests/corpus are changed at random:
bits flipped, stretches cut, doubled, swapped with another file's, numbers put to their extremes. What a loader does not
survive is kept in the folder that --keep names, to be added to the corpus when it is mended.
"""

from __future__ import annotations

import collections
import logging
import random
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from robustda.commands.parsing import _check_config
from robustda.data import cache
from robustda.data.domain import Domain
from robustda.data.images import longer_side, read_image
from robustda.decisions import read_decisions
from robustda.errors import RobustDAError
from robustda.files import load_tensors
from robustda.noise.record import NoiseRecord
from robustda.reading import check_tensor_file, read_object

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 20  # after which a loader is taken to hang
TOKENS = [
    b"\0",
    b"\xff" * 8,
    b"-1",
    b"nan",
    b"1e999",
    b'"',
    b",",
    b"\n",
    b"{",
    b"[" * 50,
    b"\x93NUMPY",
    b"PK\x03\x04",
    b"|O",
]


def look_at_image(path: Path) -> None:
    longer_side(path)
    read_image(path)


def look_at_tensors(path: Path) -> None:
    check_tensor_file(path)
    load_tensors(path)


def open_cache(path: Path) -> None:
    """The notes of a cache entry; its pixels are sound."""
    (path.parent / "pixels.raw").write_bytes(bytes(2 * 4 * 4 * 3))
    path.rename(path.parent / "meta.json")
    cache._open(path.parent, "decoder")


# Each loader: what it reads, the errors that are its own, and how often it takes its turn.
LOADERS: dict[str, tuple[Callable[[Path], object], tuple[type[Exception], ...], int]] = {
    "csv": (lambda path: Domain.from_table(path), (RobustDAError,), 2),
    "csv.gz": (lambda path: Domain.from_table(path), (RobustDAError,), 1),
    "parquet": (lambda path: Domain.from_table(path), (RobustDAError,), 2),
    "npz": (lambda path: Domain.from_npz(path), (RobustDAError,), 8),
    "npy": (lambda path: Domain.from_npy(path), (RobustDAError,), 8),
    "image": (look_at_image, (RobustDAError,), 20),
    "json": (read_object, (ValueError,), 40),
    "safetensors": (look_at_tensors, (ValueError,), 40),
    "yaml": (_check_config, (RobustDAError,), 4),
    "decisions": (read_decisions, (RobustDAError,), 20),
    "noise": (NoiseRecord.from_csv, (RobustDAError,), 20),
    "cache": (open_cache, (), 20),
}
ENDINGS = {"image": "png", "decisions": "csv", "noise": "csv", "cache": "json"}


def seeds(loader: str) -> list[bytes]:
    """The files of the corpus that a loader starts from."""
    return [path.read_bytes() for path in sorted((CORPUS / loader).iterdir())]


def changed(content: bytes, other: bytes, rng: random.Random) -> bytes:
    """The content with some damage."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        size = len(data)
        at = rng.randint(0, size)
        end = rng.randint(at, size)
        kind = rng.randrange(8)
        if kind == 0 and size:
            data[at % size] ^= 1 << rng.randrange(8)
        elif kind == 1 and size:
            data[at % size] = rng.randrange(256)
        elif kind == 2:
            del data[at : min(end, at + rng.randint(1, 63))]
        elif kind == 3:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 4:
            data[at:at] = data[at : min(end, at + 256)]
        elif kind == 5 and other:
            start = rng.randrange(len(other))
            data[at : at + 32] = other[start : start + 32]
        elif kind == 6:
            number = rng.choice([0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1])
            data[at : at + 4] = struct.pack(rng.choice(["<I", ">I"]), number)
        elif kind == 7 and rng.random() < 0.2:
            del data[at:]
    return bytes(data[: 1 << 16])


def attempt(loader: str, content: bytes, place: Path) -> str:
    """Feed a loader: what came of it, `read` or `refused`. Anything else is raised."""
    read, own, _ = LOADERS[loader]
    path = place / f"fed.{ENDINGS.get(loader, loader)}"
    path.write_bytes(content)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
        return "read"
    except own:
        return "refused"
    finally:
        signal.alarm(0)


def main() -> int:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loaders", nargs="*", default=list(LOADERS))
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"))
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    logging.disable()  # Pillow's complaints about what it is fed
    turns = [loader for loader in chosen.loaders for _ in range(LOADERS[loader][2])]
    files = {loader: seeds(loader) for loader in chosen.loaders}
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    began, failures = time.monotonic(), 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        for number in range(chosen.executions):
            loader = rng.choice(turns)
            content = changed(rng.choice(files[loader]), rng.choice(files[loader]), rng)
            try:
                counts[loader, attempt(loader, content, Path(place))] += 1
            except Exception as error:
                failures += 1
                chosen.keep.mkdir(exist_ok=True)
                (chosen.keep / f"{loader}-{failures:04d}").write_bytes(content)
                print(f"{loader}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
            if (number + 1) % 100_000 == 0:
                print(f"{number + 1:,} executions, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{chosen.executions:,} executions in {time.monotonic() - began:.0f} s, {failures} failures")
    for loader in chosen.loaders:
        print(f"  {loader:12} {counts[loader, 'read']:>8,} read {counts[loader, 'refused']:>8,} refused")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
