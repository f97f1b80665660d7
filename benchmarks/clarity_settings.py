"""How clarity's settings were chosen: one changed at a time, on amazon's two tasks alone.

    ROBUSTDA_DATA=... python benchmarks/clarity_settings.py [--features runs/bench] [--only width learning ...]
        [--out clarity_settings.json]

Office-31 on frozen features: the authors' draws of label, feature and mixed noise at 40 %, and two simulated draws of
label noise; one seed, final iteration, without the second opinion unless it is what is looked at. `--features` is the
folder in which `robustda bench table1` has put the features of corrupted images. What is in the file already is not run
again.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from robustda.bench.data import noisy_domain, target_domain
from robustda.methods import create_method

CELLS = [(target, noise, "authors") for target in ("webcam", "dslr") for noise in ("label", "feature", "mixed")]
CELLS += [("webcam", "label", "1"), ("dslr", "label", "2")]
VARIATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "second opinion": {"voices": "two"},
    "learning rate .01": {"head_rate": 0.01},
    "learning rate .06": {"head_rate": 0.06},
    "batches of 32": {"batch_size": 32},
    "batches of 128": {"batch_size": 128},
    "300 steps": {"head_steps": 300},
    "600 steps": {"head_steps": 600},
    "2,000 steps": {"head_steps": 2000},
    "confusion half": {"confusion": 0.75},
    "confusion twice": {"confusion": 3.0},
    "no confusion": {"confusion": 0.0},
    "temperature 2": {"temperature": 2.0},
    "temperature 3.5": {"temperature": 3.5},
    "no smoothing": {"smoothing": 0.0},
    "smoothing .2": {"smoothing": 0.2},
    "width 256": {"width": 256},
    "one reading": {"readings": "one"},
    "two voices, one reading": {"voices": "two", "readings": "one"},
    "one head": {"heads": 1},
    "six heads of 256": {"heads": 6, "width": 256},
    "one head of 1,024, 600 steps": {"heads": 1, "width": 1024, "head_steps": 600},
    "no dropout": {"dropout": 0.0},
    "all labels believed": {"clean": False},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", default="runs/bench")
    parser.add_argument("--only", nargs="+", default=[""], help="variations with one of these words in their name")
    parser.add_argument("--out", default="clarity_settings.json")
    arguments = parser.parse_args()
    root, work, file = Path(os.environ["ROBUSTDA_DATA"]), Path(arguments.features), Path(arguments.out)
    warnings.simplefilter("ignore")
    found: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.exists() else {}
    print("| | average | " + " | ".join(name_of(cell) for cell in CELLS) + " |")
    print("|---" * (len(CELLS) + 2) + "|")
    for name, settings in VARIATIONS.items():
        if not any(word in name for word in arguments.only):
            continue
        row = found.setdefault(name, {})
        for cell in CELLS:
            if name_of(cell) not in row:
                row[name_of(cell)] = run(root, work, *cell, {"voices": "one"} | settings)
                file.write_text(json.dumps(found, indent=1) + "\n")
        values = [row[name_of(cell)] for cell in CELLS]
        print(
            f"| {name} | {np.mean(values):.1f} | " + " | ".join(f"{value:.1f}" for value in values) + " |", flush=True
        )


def name_of(cell: tuple[str, str, str]) -> str:
    target, noise, draw = cell
    return f"A→{target[0].upper()} {noise}" + ("" if draw == "authors" else f", draw {draw}")


def run(root: Path, work: Path, target: str, noise: str, draw: str, settings: dict[str, Any]) -> float:
    """Target accuracy in %."""
    source = noisy_domain(root, "features", "amazon", noise, 0.4, draw, work)
    method = create_method("clarity", seed=0, **settings)
    method.fit(source, target_domain(root, "features", target, work), progress=False, tensorboard=False, eval_every=0)
    return round(100 * float(method.summary_["target_accuracy"]), 2)


if __name__ == "__main__":
    main()
