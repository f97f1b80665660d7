"""What each part of concord is worth, on amazon's two tasks of Office-31 features.

    ROBUSTDA_DATA=... python benchmarks/concord_ablation.py [--features FOLDER] [--seeds 3] [--out ablation.json]

The whole; one member in place of ten; every label believed; one round in place of ten. Under no noise, and the authors'
draws of label noise at 40 and 80 %; with the folder of `robustda bench` that holds features of corrupted images, of
feature and mixed noise at 40 %, too. Target accuracy in %, mean over tasks and seeds.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from robustda import Concord
from robustda.bench.data import data_root, noisy_domain, target_domain

VARIANTS = {
    "whole": {},
    "one member": {"members": 1},
    "all labels believed": {"clean": False},
    "one round": {"rounds": 1},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=Path, default=None, help="the --out folder of a bench, with its features/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    root, work = data_root(), arguments.features or Path()
    noises = [("none", 0.0), ("label", 0.4), ("label", 0.8)]
    if arguments.features is not None:
        noises += [("feature", 0.4), ("mixed", 0.4)]
    names = [kind if kind == "none" else f"{kind} {rate:g}" for kind, rate in noises]
    print("| | " + " | ".join([*names, "seconds a task"]) + " |")
    print("|" + "---|" * (len(noises) + 2))
    found = {}
    for name, settings in VARIANTS.items():
        began, line = time.perf_counter(), {}
        for kind, rate in noises:
            source = noisy_domain(root, "features", "amazon", kind, rate, "authors", work)
            scores = [
                Concord(seed=seed, **settings)
                .fit(source, target_domain(root, "features", target), device="cpu", progress=False)
                .summary_["target_accuracy"]
                for seed in range(arguments.seeds)
                for target in ("webcam", "dslr")
            ]
            line[kind if kind == "none" else f"{kind} {rate:g}"] = 100 * float(np.mean(scores))
        seconds = (time.perf_counter() - began) / (len(noises) * 2 * arguments.seeds)
        found[name] = line | {"seconds": seconds}
        print(f"| {name} | " + " | ".join([*(f"{v:.1f}" for v in line.values()), f"{seconds:.1f}"]) + " |", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
