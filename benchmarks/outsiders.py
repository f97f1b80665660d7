"""Does the audit see examples that are of none of the classes? Office-31's features, some of its classes as outsiders.

    ROBUSTDA_DATA=... python benchmarks/outsiders.py [--domains amazon ...] [--noises 0 0.2 0.4] [--out outsiders.json]

Of the 31 classes 0, 3, 10 or 20 are outsiders: their examples stay, each with the label of any of the other classes, as
in a search on the web. Of the labels of the others a share is wrong, evenly. How many of the outsiders, and how many of
the others, are said to resemble no class, and how many of the latter have a wrong label. One draw each.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np

from robustda.data.catalog import office31_features
from robustda.noise.evidence import label_evidence
from robustda.noise.recipes import corrupt_labels, transition_matrix

DOMAINS = ("amazon", "dslr", "webcam")
OUTSIDERS = (0, 3, 10, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--domains", nargs="+", default=DOMAINS, choices=DOMAINS)
    parser.add_argument("--noises", nargs="+", type=float, default=[0.0, 0.2, 0.4])
    parser.add_argument("--out", type=Path, default=Path("outsiders.json"))
    arguments = parser.parse_args()
    root = Path(os.environ["ROBUSTDA_DATA"])
    rows = []
    print(
        "| wrong labels | outsiders | "
        + " | ".join(f"{name}: found, others, wrong" for name in arguments.domains)
        + " |"
    )
    print("|---" * (len(arguments.domains) + 2) + "|")
    for noise in arguments.noises:
        for count in OUTSIDERS:
            found = [look(root, name, count, noise) for name in arguments.domains]
            rows += [
                {"domain": name, "outsiders": count, "noise": noise, "found": a, "others": b, "wrong": c}
                for name, (a, b, c) in zip(arguments.domains, found, strict=True)
            ]
            print(
                f"| {noise:.0%} | {count} | "
                + " | ".join("{:.2f}, {:.3f}, {:.2f}".format(*one) for one in found)
                + " |"
            )
    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")


def look(root: Path, name: str, count: int, noise: float) -> tuple[float, float, float]:
    """The share of outsiders that are found, that of others taken for such, and how many of these are wrong."""
    domain = office31_features(root, name)
    assert domain.y is not None
    rng = np.random.default_rng(5)
    outside = np.isin(domain.y, rng.permutation(len(domain.classes))[:count])
    names, true = np.unique(np.where(outside, -1, domain.y), return_inverse=True)
    true = true - (names[0] < 0)
    n_classes = len(names) - int(names[0] < 0)
    given = corrupt_labels(np.maximum(true, 0), transition_matrix("symmetric", n_classes, noise), 3)
    given = np.where(outside, rng.integers(0, n_classes, len(true)), given)
    features = np.asarray(domain.x, dtype=np.float32)
    unlike = label_evidence(features, given, n_classes).unlike
    mistaken = unlike & ~outside
    shares = (unlike[outside], mistaken[~outside], (given != true)[mistaken])
    found, others, wrong = (float(share.mean()) if len(share) else 0.0 for share in shares)
    return found, others, wrong


if __name__ == "__main__":
    main()
