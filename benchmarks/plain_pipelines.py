"""Plain pipelines on Office-31 features under label noise, to see what the trained methods are worth.

    ROBUSTDA_DATA=... python benchmarks/plain_pipelines.py [--rate 0.4]

Logistic regression (features at unit length, C = 1 on noisy and C = 10 on clean or cleaned labels) on the noisy labels,
on the right ones, and on those whose label is the most frequent one among their ten nearest neighbours. Target accuracy
in %, the authors' draws.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from robustda.bench.data import noisy_domain, target_domain
from robustda.bench.paper import OFFICE_TASKS
from robustda.data.catalog import parse_task
from robustda.noise.vectors import unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=0.4)
    arguments = parser.parse_args()
    root = Path(os.environ["ROBUSTDA_DATA"])
    rows: dict[str, list[float]] = {"noisy labels": [], "right labels": [], "cleaned by ten neighbours": []}
    for task in OFFICE_TASKS:
        source, target = parse_task(task)
        noisy = noisy_domain(root, "features", source, "label", arguments.rate, "authors", Path("runs/bench"))
        right, test = target_domain(root, "features", source).y, target_domain(root, "features", target)
        x, xt, y = unit(np.asarray(noisy.x)), unit(np.asarray(test.x)), noisy.y
        # Eleven, of which the first is the example itself.
        near = KNeighborsClassifier(11).fit(x, y).kneighbors(x, return_distance=False)[:, 1:]
        votes = np.array([np.bincount(y[some], minlength=len(noisy.classes)).argmax() for some in near])
        for name, labels, kept, c in (
            ("noisy labels", y, slice(None), 1.0),
            ("right labels", right, slice(None), 10.0),
            ("cleaned by ten neighbours", y, votes == y, 10.0),
        ):
            model = LogisticRegression(C=c, max_iter=500).fit(x[kept], labels[kept])
            rows[name].append(100 * float((model.predict(xt) == test.y).mean()))
    print("| logistic regression on | " + " | ".join(OFFICE_TASKS) + " | average |")
    print("|---" * (len(OFFICE_TASKS) + 2) + "|")
    for name, scores in rows.items():
        print(f"| {name} | " + " | ".join(f"{s:.1f}" for s in scores) + f" | {np.mean(scores):.1f} |")


if __name__ == "__main__":
    main()
