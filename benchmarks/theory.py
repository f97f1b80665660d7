"""The terms of section 2.2 on Office-31 features: the six tasks, two halves of one domain, and feature noise.

    ROBUSTDA_DATA=... python benchmarks/theory.py [--features FOLDER]

With the folder of `robustda bench` that holds features of corrupted images, also: amazon to webcam with 20 to 80 % of
amazon's images corrupted (the authors' draws), all of the source and, as proxy, the images that are not. The paper says
that feature noise enlarges the discrepancy between the domains.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from robustda import Domain
from robustda.bench.paper import OFFICE_TASKS
from robustda.data.catalog import office31_features, parse_task
from robustda.theory import Terms, measure_terms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=Path, default=None, help="folder of amazon_feature_{rate}_authors.npz")
    arguments = parser.parse_args()
    columns = ["mistakes at home", "MDD", "on the examples learned from", "Q_n to Q'", "Q' to P", "A-distance", "bound"]
    print("| | " + " | ".join([*columns, "seconds"]) + " |")
    print("|" + "---|" * (len(columns) + 2))
    for task in OFFICE_TASKS:
        source, target = (office31_features(None, name) for name in parse_task(task))
        show(task, source.x, source.y, target.x)
    amazon, webcam = office31_features(None, "amazon"), office31_features(None, "webcam")
    half = np.random.default_rng(0).permutation(len(amazon)) % 2 == 0
    show("half of A → the other", amazon.x[half], amazon.y[half], amazon.x[~half])
    if arguments.features is None:
        return
    place = {name: row for row, name in enumerate(amazon.ids.tolist())}
    for rate in (0.2, 0.4, 0.6, 0.8):
        made = Domain.read(arguments.features / f"amazon_feature_{rate:g}_authors.npz")
        rows = [place[name] for name in made.ids.tolist()]
        x, hit = np.array(amazon.x), np.zeros(len(amazon), dtype=bool)
        x[rows], hit[rows] = made.x, True
        show(f"A→W, {100 * rate:.0f} % corrupted", x, amazon.y, webcam.x, ~hit)


def show(
    name: str, source: np.ndarray, labels: np.ndarray, target: np.ndarray, proxy: np.ndarray | None = None
) -> None:
    start = time.perf_counter()
    found: Terms = measure_terms(source, labels, target, n_classes=31, proxy=proxy)
    took = time.perf_counter() - start
    values = [found.error, found.discrepancy, found.to_proxy, found.from_proxy, found.divergence]
    shown = [f"{one.value:.3f}" for one in values]
    shown.insert(2, f"{found.discrepancy.fitted:.3f}")
    print(f"| {name} | " + " | ".join([*shown, f"{found.bound.total:.0f}", f"{took:.1f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
