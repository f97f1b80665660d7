"""How much clusters can tell where 80 % of all labels are wrong: Office-31 on frozen features, simulated draws.

    ROBUSTDA_DATA=... python benchmarks/cluster_limits.py [--rate 0.8 --draws 6]

The share of each domain, in %, that is named rightly by matching clusters to classes by the labels in them: with the
clusterings that `robustda.noise.clusters` finds, and with the one that no clustering can be better than, the true
classes.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from robustda.data.catalog import OFFICE_31, office31_features
from robustda.noise.clusters import cluster_votes
from robustda.noise.likelihood import symmetric
from robustda.noise.recipes import corrupt_labels, transition_matrix


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=0.8)
    parser.add_argument("--draws", type=int, default=6)
    arguments = parser.parse_args()
    print("| | clusters as found | the true classes as clusters |\n|---|---|---|")
    for entry in OFFICE_31.domains:
        domain = office31_features(Path(os.environ["ROBUSTDA_DATA"]), entry.name)
        assert domain.y is not None
        true, size = domain.y, len(domain.classes)
        x = np.asarray(domain.x, dtype=np.float32)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        found, bound = [], []
        for draw in range(arguments.draws):
            given = corrupt_labels(true, transition_matrix("symmetric", size, arguments.rate), draw)
            votes = cluster_votes(x, given, size, arguments.rate, seed=draw)
            found.append((votes.argmax(axis=1) == true).mean())
            bound.append((named(true, given, size, arguments.rate)[true] == true).mean())
        print(f"| {entry.name} | {100 * np.mean(found):.0f} | {100 * np.mean(bound):.0f} |", flush=True)


def named(clusters: np.ndarray, labels: np.ndarray, size: int, rate: float) -> np.ndarray:
    """The class of each cluster, no two of the same, that makes the labels likeliest."""
    counts = np.zeros((size, size))
    np.add.at(counts, (clusters, labels), 1)
    return linear_sum_assignment(counts @ np.log(symmetric(rate, size)).T, maximize=True)[1]


if __name__ == "__main__":
    main()
