"""How time and memory grow with the number of examples: fitting vectors, decoding images, judging labels.

    python benchmarks/scale.py [--only mdd rda auto images cached counting rates exam] [--examples 10000]
        [--images 1000 10000 100000]
    python benchmarks/scale.py --ids 10000000
    python benchmarks/scale.py --mapped 16

Every measurement has a process of its own, which first does the same work on a few examples, so that libraries are
loaded and warmed up; memory is how far the peak of the resident set lies above what the process held then. The
exponents are the slopes of log time and log memory against log m: over all sizes, and (in brackets), since whatever
does not depend on m hides in the smallest, between the two largest. 1 means linear. Each time is compared with a
simple thing that has to be done with the same data, each memory with that of the data.

- mdd, rda: `fit` on m vectors of 512 numbers made in the process, half of them source, half target, 10 classes, 1,024
  a step. Training is one epoch of each phase, so the number of steps is proportional to m. RDA is given the noise
  rate. Compared with one sum over the vectors. auto is RDA that estimates the rate; since that takes minutes for a
  million vectors, it is done only when asked for.
- images: m JPEG files, 96 pixels wide, are listed, read, decoded into a fresh cache at 64 pixels and mapped; cached is
  the same when the cache holds them already. Compared with Pillow decoding and resizing as many, in one thread.
- counting: the confident joint of 1,000 classes from m × 1,000 probabilities. Compared with one sum over them.
- rates: what noise_rate="auto" does, for m vectors of 64 numbers, 31 classes and 30 % wrong labels. Compared with one
  sum over the vectors. Only when asked for: a million take minutes.
- exam: the curriculum's thresholds and trust, and the rows of stage 2, for 1,000 classes. Compared with one sort of the
  losses.
- ids: `robustda fit` by RDA as far as it depends on the number of examples and not on their size: m source vectors of 8
  numbers in an .npy file, 1,000 target vectors, one epoch of the curriculum, 100 steps of adaptation, all files of the
  run folder with trust.csv among them. Compared with writing as many ids and losses by the csv module.
- mapped: source vectors of 512 numbers in an .npy file of so many GiB, 500 steps of MDD that read their batches from it
  (placement stream). Most of the file is a hole, which is read as zeros at the speed of the disk cache. Memory is what
  the process holds by itself, without the pages of the file that the system keeps as long as nobody else needs them.
  Compared with one sum over the file.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, N_CLASSES, BATCH = 512, 10, 1024
MANY_CLASSES = 1000
SIDE, DECODED_SIDE = 96, 64
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = [work for work in WORK if work not in ("auto", "rates", "ids", "mapped")]
    parser.add_argument("--only", nargs="+", choices=list(WORK), default=usual)
    parser.add_argument("--examples", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--images", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--ids", type=int, nargs="+", help="do only this: a fit with so many examples")
    parser.add_argument("--mapped", type=int, nargs="+", help="do only this: a fit from a file of so many GiB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="measure so often and take the fastest")
    parser.add_argument("--out", type=Path, default=Path("runs/scale.json"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*json.loads(arguments.one))))
        return
    if arguments.ids or arguments.mapped:
        arguments.only = [work for work in ("ids", "mapped") if getattr(arguments, work)]
    rows: list[Row] = []
    print("| work | m | seconds | compared | peak, MB | compared | exponent of time | of memory |")
    print("|---|---|---|---|---|---|---|---|")
    for work in arguments.only:
        found: list[Row] = []
        sizes = {"images": arguments.images, "cached": arguments.images, "ids": arguments.ids}
        rows_of_a_gib = 2**30 // (4 * WIDTH)
        sizes["mapped"] = [rows_of_a_gib * size for size in arguments.mapped or []]
        for size in sizes.get(work) or arguments.examples:
            tries = [in_own_process(work, size, arguments.threads) for _ in range(arguments.repeats)]
            found.append({"work": work, "m": size} | min(tries, key=lambda row: row["seconds"]))
            print(line(found), flush=True)
        rows += [row | {"exponents": exponents(found)} for row in found]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"threads": arguments.threads, "rows": rows}, indent=1))


def line(rows: list[Row]) -> str:
    """The last row as a line of the table, with the exponents so far."""
    row, slopes = rows[-1], exponents(rows)
    seconds = f"{row['seconds']:.2f} | {row['seconds'] / row['reference_seconds']:.1f} × {row['reference']}"
    memory = f"{row['peak_bytes'] / 1e6:.0f} | {row['peak_bytes'] / row['data_bytes']:.2f} × the data"
    shown = " | ".join("{:.2f} ({:.2f})".format(*slopes[of]) if of in slopes else "" for of in ("time", "memory"))
    return f"| {row['work']} | {row['m']:,} | {seconds} | {memory} | {shown} |"


def exponents(rows: list[Row]) -> dict[str, list[float]]:
    """The slope over all sizes, and that between the two largest."""
    if len(rows) < 2:
        return {}
    sizes = np.log([row["m"] for row in rows])
    slopes = {}
    for of, key, least in (("time", "seconds", 1e-6), ("memory", "peak_bytes", 1e6)):
        values = np.log([max(least, row[key]) for row in rows])
        slopes[of] = [float(np.polyfit(sizes, values, 1)[0]), float(np.diff(values)[-1] / np.diff(sizes)[-1])]
    return slopes


def in_own_process(work: str, size: int, threads: int) -> Row:
    command = [sys.executable, __file__, "--one", json.dumps([work, size])]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(work: str, size: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        WORK[work](100 if work in ("images", "cached") else 4 * BATCH, Path(folder, "few"))
        before = resident("VmRSS")
        row = WORK[work](size, Path(folder, "all"))
        return {"peak_bytes": resident("VmHWM") - before} | row


def resident(which: str) -> int:
    """Bytes of this process in memory: now (VmRSS) or at most so far (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(which))


def fit_vectors(name: str, options: dict[str, Any], size: int, folder: Path) -> Row:
    from robustda import Domain
    from robustda.methods import create_method

    half = size // 2
    labels = np.arange(half) % N_CLASSES
    source, target = (clusters(half, seed) for seed in (1, 2))
    seconds, domains = clocked(lambda: (Domain.from_arrays(source, labels), Domain.from_arrays(target)))
    method = create_method(name, steps=max(1, half // BATCH), batch_size=BATCH, width=256, **options)
    seconds += clocked(lambda: method.fit(*domains, device="cpu", progress=False, threads=0))[0]
    reference = clocked(lambda: source.sum() + target.sum())[0]
    data = source.nbytes + target.nbytes
    return {"seconds": seconds, "reference": "one sum", "reference_seconds": reference, "data_bytes": data}


def clusters(size: int, seed: int) -> np.ndarray:
    """Classes in turn around centres of their own, made in place: nothing but the vectors themselves takes memory."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((size, WIDTH), dtype=np.float32)
    centres = np.random.default_rng(0).standard_normal((N_CLASSES, WIDTH), dtype=np.float32)
    for label, centre in enumerate(centres):
        x[label::N_CLASSES] += centre
    return x


def decode_images(cached: bool, size: int, folder: Path) -> Row:
    from PIL import Image

    from robustda import Domain

    paths = jpeg_files(folder / "images", size)

    def read() -> np.ndarray:
        return Domain.from_folder(folder / "images").decoded(DECODED_SIDE, cache_dir=folder / "cache").x

    def by_pillow() -> None:
        for path in paths[:1000]:
            np.asarray(Image.open(path).convert("RGB").resize((DECODED_SIDE, DECODED_SIDE), Image.Resampling.BILINEAR))

    if cached:
        read()
    seconds, pixels = clocked(read)
    reference = clocked(by_pillow)[0] * size / min(size, 1000)
    return {"seconds": seconds, "reference": "Pillow", "reference_seconds": reference, "data_bytes": pixels.nbytes}


def jpeg_files(folder: Path, size: int) -> list[Path]:
    from PIL import Image

    rng = np.random.default_rng(0)
    paths = [folder / f"class{number % N_CLASSES}" / f"{number:07d}.jpg" for number in range(size)]
    for path in paths[:N_CLASSES]:
        path.parent.mkdir(parents=True)
    for path in paths:
        coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        coarse.resize((SIDE, SIDE), Image.Resampling.BILINEAR).save(path)
    return paths


def count_noise(size: int, folder: Path) -> Row:
    from robustda.noise.confident import confident_joint

    rng = np.random.default_rng(0)
    labels = rng.integers(0, MANY_CLASSES, size)
    probabilities = np.empty((size, MANY_CLASSES), dtype=np.float32)
    for start in range(0, size, 4096):
        block = probabilities[start : start + 4096]
        rng.random(dtype=np.float32, out=block)
        block[np.arange(len(block)), labels[start : start + 4096]] += 100
        block /= block.sum(axis=1, keepdims=True)
    labels = np.where(rng.random(size) < 0.2, rng.integers(0, MANY_CLASSES, size), labels)
    seconds = clocked(lambda: confident_joint(labels, probabilities))[0]
    reference = clocked(probabilities.sum)[0]
    return {
        "seconds": seconds,
        "reference": "one sum",
        "reference_seconds": reference,
        "data_bytes": probabilities.nbytes,
    }


def estimate_noise_rates(size: int, folder: Path) -> Row:
    from robustda.noise.estimate import estimate_rates

    rng = np.random.default_rng(0)
    true = rng.integers(0, 31, size)
    x = rng.standard_normal((size, 64), dtype=np.float32)
    x += rng.standard_normal((31, 64), dtype=np.float32)[true]
    labels = np.where(rng.random(size) < 0.3, rng.integers(0, 31, size), true)
    seconds = clocked(lambda: estimate_rates(x, labels, 31, inputs=x))[0]
    reference = clocked(lambda: x.sum())[0]
    return {"seconds": seconds, "reference": "one sum", "reference_seconds": reference, "data_bytes": x.nbytes}


def hold_exam(size: int, folder: Path) -> Row:
    import torch

    from robustda.curriculum import balanced, exam, kept_share

    generator = torch.Generator().manual_seed(0)
    losses = torch.rand(size, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, MANY_CLASSES, (size,), generator=generator)
    rates = torch.full((MANY_CLASSES,), 0.2, dtype=torch.float64)

    def choose() -> torch.Tensor:
        trust = exam(losses, labels, kept_share(rates)).trust
        return balanced(trust.nonzero()[:, 0], labels)

    seconds = clocked(choose)[0]
    reference = clocked(losses.sort)[0]
    return {"seconds": seconds, "reference": "one sort", "reference_seconds": reference, "data_bytes": 16 * size}


def fit_ids(size: int, folder: Path) -> Row:
    source, target = npy_files(folder, size, 8)
    seconds, _ = clocked(lambda: fit_files("rda", source, target, folder, steps=100, epochs=1, noise_rate=0.2))

    def by_csv() -> None:
        with open(folder / "reference.csv", "w") as file:
            csv.writer(file).writerows((str(number), number / 7) for number in range(size))

    reference = clocked(by_csv)[0]
    data = source.stat().st_size + 8 * size
    return {"seconds": seconds, "reference": "csv", "reference_seconds": reference, "data_bytes": data}


def fit_mapped(size: int, folder: Path) -> Row:
    source, target = npy_files(folder, size, WIDTH, filled=100_000)
    before, most, over = resident("RssAnon"), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], resident("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    seconds, _ = clocked(lambda: fit_files("mdd", source, target, folder, steps=500, placement="stream"))
    over.set()
    watcher.join()
    reference = clocked(lambda: np.load(source, mmap_mode="r").sum())[0]
    found = {"seconds": seconds, "reference": "one sum", "reference_seconds": reference}
    return found | {"data_bytes": source.stat().st_size, "peak_bytes": most[0] - before}


def npy_files(folder: Path, size: int, width: int, filled: int | None = None) -> tuple[Path, Path]:
    """A labelled source in a file of its own, of which so many rows are more than zeros, and a small target."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((N_CLASSES, width), dtype=np.float32)
    for name, count in (("source", size), ("target", 1000)):
        x = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (count, width))
        for start in range(0, min(count, filled or count), 10_000):
            block = x[start : min(count, start + 10_000)]
            block[:] = rng.standard_normal(block.shape, dtype=np.float32)
            block += centres[np.arange(start, start + len(block)) % N_CLASSES]
        x.flush()
    np.save(folder / "source_y.npy", np.arange(size) % N_CLASSES)
    return folder / "source.npy", folder / "target.npy"


def fit_files(method: str, source: Path, target: Path, folder: Path, **options: Any) -> None:
    from robustda.cli import main as robustda

    given = {"method": method, "source": source, "target": target, "out": folder / "run", **options}
    given |= {"batch_size": BATCH, "width": 64, "device": "cpu", "tensorboard": "false", "progress": "false"}
    if robustda(["fit", *(text for name, value in given.items() for text in (f"--{name}", str(value)))]):
        raise SystemExit(f"{method} failed")


def clocked(do: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = do()
    return time.perf_counter() - start, found


WORK: dict[str, Callable[[int, Path], Row]] = {
    "mdd": functools.partial(fit_vectors, "mdd", {}),
    "rda": functools.partial(fit_vectors, "rda", {"epochs": 1, "noise_rate": 0.2}),
    "auto": functools.partial(fit_vectors, "rda", {"epochs": 1}),
    "images": functools.partial(decode_images, False),
    "cached": functools.partial(decode_images, True),
    "counting": count_noise,
    "rates": estimate_noise_rates,
    "exam": hold_exam,
    "ids": fit_ids,
    "mapped": fit_mapped,
}


if __name__ == "__main__":
    main()
