"""Does a run know when not to rely on it? Labels that are wrong by a rule, and classes that the target lacks.

    ROBUSTDA_DATA=... python benchmarks/doubts.py [--only rules missing] [--tasks A-W ...] [--out doubts.json]

Office-31 on frozen features, one draw of each. **Rules**: how many classes of each source are named in a warning, under
noise that follows a rule (pair: each class loses a share to the next one; some: five classes lose it to one other each;
swap: three pairs of classes exchange it) and under noise that does not, where none should be. **Missing**: 40 % of the
source's labels are wrong, and 0, 5, 10 or 20 of the 31 classes are taken out of the target; how many classes clarity
says are missing, how many of these are, its accuracy if it ignores that, as it is, and were it told which are missing,
and the accuracy that it expects of itself. What is in the file already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from robustda import Clarity
from robustda.data.catalog import office31_features, parse_task
from robustda.noise.recipes import corrupt_labels, transition_matrix
from robustda.noise.rules import find_rules
from robustda.noise.strangers import judge_labels

TASKS = ("A-W", "W-A", "A-D", "D-A", "W-D", "D-W")
DOMAINS = ("amazon", "dslr", "webcam")
NOISES = ("none 0", "even 0.2", "even 0.4", "even 0.6", "even 0.8", "half of the classes 0.7", "pair 0.2", "pair 0.3")
NOISES += ("pair 0.4", "some 0.2", "some 0.4", "swap 0.3", "swap 0.45", "swap 0.6")
ABSENT = (0, 5, 10, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["rules", "missing"], choices=["rules", "missing"])
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--out", default="doubts.json")
    arguments = parser.parse_args()
    root, file = Path(os.environ["ROBUSTDA_DATA"]), Path(arguments.out)
    warnings.simplefilter("ignore")
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def kept(key: str, value: Any) -> None:
        found[key] = value
        file.write_text(json.dumps(found, indent=1) + "\n")

    if "rules" in arguments.only:
        print("| noise | " + " | ".join(f"{name}: named, believed right" for name in DOMAINS) + " |")
        print("|---" * (len(DOMAINS) + 1) + "|")
        for noise in NOISES:
            for name in DOMAINS:
                if f"{noise} {name}" not in found:
                    kept(f"{noise} {name}", rules(root, noise, name))
            shown = [found[f"{noise} {name}"] for name in DOMAINS]
            print(f"| {noise} | " + " | ".join(f"{named}, {right:.3f}" for named, right in shown) + " |", flush=True)
    if "missing" in arguments.only:
        names = ("taken out", "named", "rightly", "ignored", "as it is", "told", "expected")
        print("| task | " + " | ".join(names) + " |")
        print("|---" * (len(names) + 1) + "|")
        for absent in ABSENT:
            for task in arguments.tasks:
                if f"{task} without {absent}" not in found:
                    kept(f"{task} without {absent}", missing(root, task, absent))
                named, rightly, *shares = found[f"{task} without {absent}"]
                values = " | ".join(f"{share:.1f}" for share in shares)
                print(f"| {task} | {absent} | {named} | {rightly} | {values} |", flush=True)


def transition(noise: str, n_classes: int) -> np.ndarray:
    kind, _, share = noise.rpartition(" ")
    rate, matrix = float(share), np.eye(n_classes)
    if kind == "pair":
        return transition_matrix("pair", n_classes, rate)
    if kind == "even":
        return transition_matrix("symmetric", n_classes, rate)
    if kind == "half of the classes":
        bad = np.random.default_rng(0).permutation(n_classes) < n_classes // 2
        return np.where(bad[:, None], transition_matrix("symmetric", n_classes, rate), matrix)
    pairs = [(k, (k + 3) % n_classes) for k in range(0, n_classes - 1, 6)]
    if kind == "swap":
        pairs = [pair for k in range(0, 24, 8) for pair in ((k, k + 1), (k + 1, k))]
    for true, given in pairs if kind != "none" else []:
        matrix[true, true], matrix[true, given] = 1 - rate, rate
    return matrix


def rules(root: Path, noise: str, name: str) -> tuple[int, float]:
    """How many classes are named, and the share of right labels among those that are believed."""
    source = office31_features(root, name)
    assert source.y is not None
    n_classes = len(source.classes)
    labels = corrupt_labels(source.y, transition(noise, n_classes), 1)
    x = np.asarray(source.x, dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    verdict = judge_labels(x, labels, n_classes, seen_as=np.asarray)
    known = verdict.confidence > 0.5
    found = find_rules(verdict.suggested[known], labels[known], n_classes)
    return len(found), float((verdict.suggested == source.y)[known].mean())


def missing(root: Path, task: str, absent: int) -> list[float]:
    """Classes that are called missing, those that are, and accuracies in %: ignored, as it is, told, expected."""
    source, target = (office31_features(root, name) for name in parse_task(task))
    assert source.y is not None
    assert target.y is not None
    n_classes = len(source.classes)
    noisy = replace(source, y=corrupt_labels(source.y, transition("even 0.4", n_classes), 1))
    gone = np.random.default_rng(absent).permutation(n_classes)[:absent]
    rest = target.take(np.flatnonzero(~np.isin(target.y, gone)))
    method = Clarity(seed=0).fit(noisy, rest, progress=False, tensorboard=False, eval_every=0)
    names = method.summary_.get("doubts", {}).get("missing_classes", [])
    named = np.flatnonzero(np.isin(method.classes_, names))
    as_it_is = method.predict_proba(rest)
    method.network_.prior.zero_()  # type: ignore[operator, union-attr]
    ignored = method.predict_proba(rest)
    told = ignored.copy()
    told[:, gone] = 0
    shares = [100 * float((p.argmax(axis=1) == rest.y).mean()) for p in (ignored, as_it_is, told)]
    return [len(named), int(np.isin(named, gone).sum()), *shares, 100 * method.summary_["expected_accuracy"]["value"]]


if __name__ == "__main__":
    main()
