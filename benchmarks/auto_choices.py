"""How well `fit --method auto` chooses between clarity and RDA, by the accuracy that it expects of each.

    ROBUSTDA_DATA=... python benchmarks/auto_choices.py [--features runs/bench] [--tasks A-W ...]
        [--noises none label feature mixed] [--draws 2] [--out auto_choices.json]

Office-31 on frozen features from both sides (the authors' draws at 40 %), then tables as in tables.py, with and without
noise. `--features` is the folder in which `robustda bench table1 --protocol mirrored` has put its features; without
ROBUSTDA_DATA there are tables only. Target labels are used for this comparison only: what was chosen, what an oracle
would have chosen, and either method alone. What is in the file already is not run again.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from robustda import Domain, load
from robustda.auto import fit_auto
from robustda.bench.data import noisy_domain, target_domain
from robustda.data.catalog import parse_task
from tables import data_sets, drifted

TASKS = ("A-W", "W-A", "A-D", "D-A", "W-D", "D-W")
Pair = tuple[Domain, Domain]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", default="runs/bench")
    parser.add_argument("--tasks", nargs="*", default=TASKS)
    parser.add_argument("--noises", nargs="+", default=["none", "label", "feature", "mixed"])
    parser.add_argument("--draws", type=int, default=2, help="of every table")
    parser.add_argument("--out", default="auto_choices.json")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    file = Path(arguments.out)
    found: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    for name, load_pair in cells(arguments).items():
        if name not in found:
            found[name] = tried(*load_pair())
            file.write_text(json.dumps(found, indent=1) + "\n")
    print("| | clarity | expected | RDA | expected | chosen |\n|---|---|---|---|---|---|")
    for name, cell in found.items():
        each = " | ".join(f"{100 * cell[m]['true']:.1f} | {100 * cell[m]['expected']:.1f}" for m in ("clarity", "rda"))
        print(f"| {name} | {each} | {cell['chosen']} |")
    print(summary(list(found.values())))


def cells(arguments: argparse.Namespace) -> dict[str, Callable[[], Pair]]:
    """Every pair of domains by its name."""
    every: dict[str, Callable[[], Pair]] = {}
    if "ROBUSTDA_DATA" in os.environ:
        for noise in arguments.noises:
            for task in arguments.tasks:
                every[f"{task}, {noise}"] = functools.partial(office, arguments.features, task, noise)
    for name, rows in data_sets().items():
        for rate in (0.0, 0.4):
            for draw in range(arguments.draws):
                every[f"{name}, {rate:.0%}, draw {draw}"] = functools.partial(table, rows, draw, rate)
    return every


def table(rows: Callable[[], tuple[np.ndarray, np.ndarray]], draw: int, rate: float) -> Pair:
    """A table whose columns have drifted."""
    return drifted(rows(), draw, rate)[:2]


def office(features: str, task: str, noise: str) -> Pair:
    """Features of Office-31."""
    root, work = Path(os.environ["ROBUSTDA_DATA"]), Path(features)
    source, target = parse_task(task)
    rate = 0.0 if noise == "none" else 0.4
    noisy = noisy_domain(root, "mirrored", source, noise, rate, "authors", work)
    return noisy, target_domain(root, "mirrored", target, work)


def tried(source: Domain, target: Domain) -> dict[str, Any]:
    """What was expected of each method, what is true of it, and which was chosen."""
    with tempfile.TemporaryDirectory() as folder:
        _, candidates = fit_auto(
            source, target, out=folder, minutes=600, say=lambda line: None, progress=False, track="none", eval_every=0
        )
        cell: dict[str, Any] = {"chosen": candidates[0].method}
        for one in candidates:
            told = load(Path(folder) / "candidates" / one.method).summary_["target_accuracy"]
            cell[one.method] = {"expected": one.expected.value, "true": told}
    return cell


def summary(found: list[dict[str, Any]]) -> str:
    """One paragraph."""
    true = {m: np.array([cell[m]["true"] for cell in found]) for m in ("clarity", "rda")}
    chosen = np.array([cell[cell["chosen"]]["true"] for cell in found])
    best = np.maximum(true["clarity"], true["rda"])
    differ = np.abs(true["clarity"] - true["rda"]) > 0.01
    right = chosen == best
    means = ", ".join(
        f"{name} {100 * values.mean():.1f}"
        for name, values in {"chosen": chosen, "by an oracle": best, **{f"always {m}": true[m] for m in true}}.items()
    )
    return (
        f"\n{len(found)} pairs, on average: {means}; where the two differ by more than a point, the better one was "
        f"chosen {right[differ].sum()} times of {differ.sum()}"
    )


if __name__ == "__main__":
    main()
