"""How well clarity knows how good it is: the accuracy it expects against the true one, and its calibration.

    ROBUSTDA_DATA=... python benchmarks/clarity_expected.py [--features runs/bench] [--tasks A-W ...]
        [--noises none label feature mixed] [--protocol peaks] [--out clarity_expected.json]

Office-31 on frozen features, the authors' draws at 40 %, one seed. `--features` is the folder in which `robustda bench
table1 --protocol ...` has put the features that the data folder lacks. ECE is over fifteen bins of equal width, before
and after the temperature. Target labels are used for this comparison only.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path

import numpy as np

from robustda.bench.data import noisy_domain, target_domain
from robustda.data.catalog import parse_task
from robustda.expect import calibrate
from robustda.methods import create_method

TASKS = ("A-W", "W-A", "A-D", "D-A", "W-D", "D-W")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", default="runs/bench")
    parser.add_argument("--protocol", choices=["features", "mirrored", "peaks"], default="peaks")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--noises", nargs="+", default=["none", "label", "feature", "mixed"])
    parser.add_argument("--out", default="clarity_expected.json")
    arguments = parser.parse_args()
    root, work = Path(os.environ["ROBUSTDA_DATA"]), Path(arguments.features)
    warnings.simplefilter("ignore")
    lines: list[dict[str, float | str]] = []
    print("| noise | task | accuracy | expected | from | to | ECE before | ECE |\n|---|---|---|---|---|---|---|---|")
    for noise in arguments.noises:
        for task in arguments.tasks:
            source_name, target_name = parse_task(task)
            rate = 0.0 if noise == "none" else 0.4
            source = noisy_domain(root, arguments.protocol, source_name, noise, rate, "authors", work)
            target = target_domain(root, arguments.protocol, target_name, work)
            method = create_method("clarity", seed=0).fit(
                source, target, progress=False, tensorboard=False, eval_every=0
            )
            given = method.predict_proba(target)
            temperature = float(method.network_.temperature)  # type: ignore[arg-type]
            assert target.y is not None
            right = given.argmax(axis=1) == target.y
            value, low, high = method.summary_["expected_accuracy"].values()
            before = ece(calibrate(given, 1 / temperature), right)
            line = {"noise": noise, "task": task, "accuracy": float(right.mean()), "expected": value, "low": low}
            lines.append(line | {"high": high, "ece_before": before, "ece": ece(given, right)})
            Path(arguments.out).write_text(json.dumps(lines, indent=1) + "\n")
            print("| " + " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in lines[-1].values()) + " |")
    off = [abs(float(line["expected"]) - float(line["accuracy"])) for line in lines]
    held = sum(float(line["low"]) <= float(line["accuracy"]) <= float(line["high"]) for line in lines)
    means = [float(np.mean([float(line[name]) for line in lines])) for name in ("ece_before", "ece")]
    print(f"\n{100 * np.mean(off):.1f} points off on average, {100 * np.max(off):.1f} at worst;")
    print(f"the interval held in {held} of {len(lines)}; ECE {means[0]:.3f} before, {means[1]:.3f} after")


def ece(probabilities: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error."""
    sure = probabilities.max(axis=1)
    place = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = [abs(right[place == b].mean() - sure[place == b].mean()) * (place == b).mean() for b in np.unique(place)]
    return float(np.sum(gaps))


if __name__ == "__main__":
    main()
