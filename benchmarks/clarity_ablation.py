"""What each part of clarity is worth: the method as it is, and with one part taken out at a time.

    ROBUSTDA_DATA=... python benchmarks/clarity_ablation.py [--features runs/bench] [--jobs 2] [--seeds 1]
        [--only smoothing ...] [--noises label label:1 ...] [--out clarity_ablation.json]

Office-31, all six tasks, frozen features, final iteration. Noise of 40 %: the authors' draws of wrong labels, corrupted
images and both, two simulated draws of wrong labels, one of pair noise, and none. A table has the mean accuracy over
all cells, how much more or less that is than as it is, with the standard error of the difference from cell to cell, and
the means by noise. Cells are run side by side, each with one thread. `--features` is the folder in which
features of corrupted images are kept; those that are not there are made first. What is in the file already is not run
again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robustda.bench.data import noisy_domain, prepare, target_domain
from robustda.data.catalog import parse_task
from robustda.engine import few_threads
from robustda.methods import create_method
from robustda.noise.recipes import corrupt_labels, transition_matrix

TASKS = ("A-W", "W-A", "A-D", "D-A", "W-D", "D-W")
NOISES = ("label", "label:1", "label:2", "feature", "mixed", "pair:0", "none")  # with the draw, if not the authors'
RATE = 0.4
PARTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "all labels believed": {"clean": False},
    "one reading of the labels": {"readings": "one"},
    "no confusion": {"confusion": 0.0},
    "no second opinion": {"voices": "one"},
    "one head": {"heads": 1},
    "no smoothing": {"smoothing": 0.0},
    "no dropout": {"dropout": 0.0},
    "no smoothing, no dropout": {"smoothing": 0.0, "dropout": 0.0},
}
Key = tuple[str, str, str, int]  # part, noise, task, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=Path, default=Path("runs/bench"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[""], help="parts with one of these words in their name")
    parser.add_argument("--noises", nargs="+", default=NOISES)
    parser.add_argument("--out", type=Path, default=Path("clarity_ablation.json"))
    arguments = parser.parse_args()
    root, file = Path(os.environ["ROBUSTDA_DATA"]), arguments.out
    parts = ["as it is", *(p for p in PARTS if p != "as it is" and any(word in p for word in arguments.only))]
    found: dict[Key, float] = {}
    if file.exists():
        found = {tuple(row[:4]): row[4] for row in json.loads(file.read_text())}  # type: ignore[misc]
    for noise in arguments.noises:
        kind, _, draw = noise.partition(":")
        if kind in ("feature", "mixed"):
            for name in ("amazon", "dslr", "webcam"):
                prepare(root, "features", name, kind, RATE, draw or "authors", arguments.features)
    cells = [(noise, task, seed) for seed in range(arguments.seeds) for noise in arguments.noises for task in TASKS]
    todo = [(part, *cell) for cell in cells for part in parts if (part, *cell) not in found]
    with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn"), initializer=alone) as pool:
        running = {pool.submit(run, root, arguments.features, *key): key for key in todo}
        for done in as_completed(running):
            found[running[done]] = done.result()
            file.write_text(json.dumps([[*key, value] for key, value in sorted(found.items())], indent=1) + "\n")
    for line in table(found, parts, cells):
        print(line)


def alone() -> None:
    torch.set_num_threads(1)
    few_threads(1)
    warnings.simplefilter("ignore")


def run(root: Path, work: Path, part: str, noise: str, task: str, seed: int) -> float:
    """Target accuracy in %."""
    source, target = parse_task(task)
    kind, _, draw = noise.partition(":")
    if kind == "pair":
        clean = target_domain(root, "features", source, work)
        assert clean.y is not None
        labels = corrupt_labels(clean.y, transition_matrix("pair", len(clean.classes), RATE), int(draw))
        noisy = replace(clean, y=labels)
    else:
        noisy = noisy_domain(root, "features", source, kind, RATE, draw or "authors", work)
    method = create_method("clarity", seed=seed, **PARTS[part])
    method.fit(noisy, target_domain(root, "features", target, work), progress=False, tensorboard=False, eval_every=0)
    return round(100 * float(method.summary_["target_accuracy"]), 2)


def table(found: dict[Key, float], parts: list[str], cells: list[tuple[str, str, int]]) -> Iterator[str]:
    noises = list(dict.fromkeys(cell[0] for cell in cells))
    yield "| | average | more than as it is | " + " | ".join(noises) + " |"
    yield "|---" * (len(noises) + 3) + "|"
    whole = np.array([found["as it is", *cell] for cell in cells])
    for part in parts:
        values = np.array([found[part, *cell] for cell in cells])
        apart = values - whole
        error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else 0.0
        means = [np.mean([v for v, cell in zip(values, cells, strict=True) if cell[0] == noise]) for noise in noises]
        gain = "" if part == "as it is" else f"{apart.mean():+.1f} ± {error:.1f}"
        yield f"| {part} | {values.mean():.1f} | {gain} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |"


if __name__ == "__main__":
    main()
