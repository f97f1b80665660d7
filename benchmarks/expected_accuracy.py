"""How near the truth is an accuracy that is expected without target labels? Six tasks of Office-31, on features.

    ROBUSTDA_DATA=... python benchmarks/expected_accuracy.py [--draws clean authors 0 1] [--out expected.json]

Draws are clean, authors (their label noise at 40 %), or seeds of simulated symmetric noise at 40 %. Models are concord
(the method as it is fitted by default, of ten members), the one member of it that is a view as well, prototypes, and
logistic regression (unit length; C = 1, on all given labels; C = 10, on the labels that are believed).
Estimates: the model's mean confidence as it is; the same at a temperature fitted on trusted source examples out of
fold, and average thresholded confidence (these two only where a model can be judged on the source); agreement with each
view of `robustda.expect.opinions`; and what `expected_accuracy` makes of it. In points of accuracy; ECE is the expected
calibration error of ten bins, before and after `temperature_for`. The rule was chosen on simulated draws of Office-31;
the embedded digits, compared by their pixels (under noise of a draw of their own), are a task that nobody would solve
so, to see what is said when all views are bad.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from robustda import Concord, Domain
from robustda.bench.paper import OFFICE_TASKS
from robustda.data.builtin import glyphs_to_digits
from robustda.data.catalog import office31_draw, office31_features, parse_task
from robustda.expect import calibrate, expected_accuracy, fit_temperature, opinions, temperature_for
from robustda.noise import corrupt_labels, transition_matrix
from robustda.noise.evidence import label_evidence
from robustda.noise.vectors import class_means, stratified_folds, unit

DIGITS = "glyphs→digits"
MODELS = (
    "concord",
    "one member of concord",
    "prototypes",
    "logistic regression, noisy",
    "logistic regression, believed",
)
COLUMNS = ("confidence", "tempered", "thresholded", "concord", "prototypes", "linear", "expected")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", nargs="+", default=["clean", "authors"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--out", type=Path, default=None, help="a JSON file with every cell")
    arguments = parser.parse_args()
    cells = [
        cell
        for draw in arguments.draws
        for task in (*OFFICE_TASKS, DIGITS)
        for cell in judge(task, draw, arguments.models)
    ]
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(cells, indent=1))
    by_model: dict[str, list[dict]] = defaultdict(list)
    for cell in cells:
        by_model[cell["model"] + (", digits" if cell["task"] == DIGITS else "")].append(cell)
    print("| mean distance from the truth | " + " | ".join(COLUMNS) + " | largest | interval holds | ECE | ECE after |")
    print("|" + "---|" * (len(COLUMNS) + 5))
    office, digits = ([cell for cell in cells if (cell["task"] == DIGITS) == which] for which in (False, True))
    for model, some in {**by_model, "all of Office-31": office, "all of the digits": digits}.items():
        shown = []
        for column in COLUMNS:
            off = [abs(cell["estimates"][column] - cell["true"]) for cell in some if column in cell["estimates"]]
            shown.append(f"{100 * np.mean(off):.1f}" if len(off) == len(some) else "")
        largest = max(abs(cell["estimates"]["expected"] - cell["true"]) for cell in some)
        holds = np.mean([cell["low"] <= cell["true"] <= cell["high"] for cell in some])
        before, after = (100 * np.mean([cell[key] for cell in some]) for key in ("ece", "ece_after"))
        print(f"| {model} | {' | '.join(shown)} | {100 * largest:.1f} | {holds:.2f} | {before:.1f} | {after:.1f} |")


def judge(task: str, draw: str, wanted: list[str]) -> list[dict]:
    """A record for each model on one task."""
    if task == DIGITS:
        source, target = glyphs_to_digits()
    else:
        source, target = (office31_features(None, name) for name in parse_task(task))
    labels = noisy(source, draw)
    x, z = (unit(np.asarray(domain.x, dtype=np.float32).reshape(len(domain), -1)) for domain in (source, target))
    evidence = label_evidence(x, labels)
    sure = evidence.confidence > 0.5
    views = opinions(x, evidence.suggested, z, trusted=sure)
    believed = ~evidence.issues
    made = {
        "concord": lambda: (concord(x, labels, z), None),
        "one member of concord": lambda: (views["concord"], None),
        "prototypes": lambda: (prototypes(x, labels, z), None),
        "logistic regression, noisy": lambda: logistic(x, labels, np.ones(len(x), dtype=bool), z, 1.0),
        "logistic regression, believed": lambda: logistic(x, labels, believed, z, 10.0),
    }
    models = {name: made[name]() for name in wanted}
    records = []
    for name, (away, at_home) in models.items():
        said, accuracy = away.argmax(axis=1), float((away.argmax(axis=1) == target.y).mean())
        estimates = {view: float((said == found.argmax(axis=1)).mean()) for view, found in views.items()}
        estimates["confidence"] = float(away.max(axis=1).mean())
        known = {}
        if at_home is not None:
            held, right = at_home[believed], labels[believed]
            known = {"source_probabilities": held, "source_labels": right}
            estimates["tempered"] = float(calibrate(away, fit_temperature(held, right)).max(axis=1).mean())
            threshold = np.quantile(held.max(axis=1), 1 - (held.argmax(axis=1) == right).mean())
            estimates["thresholded"] = float((away.max(axis=1) > threshold).mean())
        value, low, high = expected_accuracy(away, views.values(), **known)
        estimates["expected"] = value
        after = calibrate(away, temperature_for(away, value))
        record = {"task": task, "draw": draw, "model": name, "true": accuracy, "low": low, "high": high}
        record |= {"estimates": estimates, "ece": ece(away, target.y), "ece_after": ece(after, target.y)}
        records.append(record)
    print(
        f"{task} {draw}: "
        + ", ".join(f"{r['model']} {r['true']:.3f} ({r['estimates']['expected']:.3f})" for r in records)
    )
    return records


def noisy(source, draw: str) -> np.ndarray:
    if draw == "clean":
        return source.y
    if draw == "authors" and len(source.classes) == 31:
        return office31_draw(None, source.name, "label", 0.4).apply(source).y
    return corrupt_labels(
        source.y, transition_matrix("symmetric", len(source.classes), 0.4), int(draw == "authors" or draw)
    )


def concord(x: np.ndarray, labels: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The method with its defaults: it judges the labels itself."""
    names = np.arange(labels.max() + 1)
    fitted = Concord().fit(Domain.from_arrays(x, names[labels]), Domain.from_arrays(z))
    return fitted.predict_proba(z).astype(np.float64)


def prototypes(x: np.ndarray, labels: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The method of that name, which takes all labels as they are given."""
    centred = unit(z - z.mean(axis=0))
    means = class_means(unit(x - x.mean(axis=0)), labels, labels.max() + 1)
    for _ in range(10):
        moved = class_means(centred, (centred @ means.T).argmax(axis=1), len(means))
        means = np.where(np.linalg.norm(moved, axis=1, keepdims=True) > 0, moved, means)
    return softmax(20.0 * centred @ means.T)


def logistic(x, labels, learn, z, c: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities on the target, and on the source out of three folds."""

    def fitted(rows: np.ndarray, on: np.ndarray) -> np.ndarray:
        model = LogisticRegression(C=c, max_iter=200).fit(x[rows], labels[rows])
        found = np.full((len(on), labels.max() + 1), -np.inf)
        found[:, model.classes_] = model.decision_function(on)
        return softmax(found)

    fold, at_home = stratified_folds(labels, 3, np.random.default_rng(0)), np.zeros((len(x), labels.max() + 1))
    for number in range(3):
        at_home[fold == number] = fitted(learn & (fold != number), x[fold == number])
    return fitted(learn, z), at_home


def softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp((scores - scores.max(axis=1, keepdims=True)).astype(np.float64))
    return shares / shares.sum(axis=1, keepdims=True)


def ece(probabilities: np.ndarray, labels: np.ndarray) -> float:
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    place = np.minimum((10 * sure).astype(int), 9)
    return float(sum(abs((right[place == b]).sum() - sure[place == b].sum()) for b in range(10)) / len(labels))


if __name__ == "__main__":
    main()
