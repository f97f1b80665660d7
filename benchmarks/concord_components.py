"""How concord's number of principal components was chosen: on amazon's two tasks only, over simulated label noise.

    ROBUSTDA_DATA=... python benchmarks/concord_components.py [--components 64 128 256 --draws 1 2 3]

Target accuracy in %, with one member. The other tasks, kinds of noise and the authors' draws had no part in the choice
that stands.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from robustda import Concord
from robustda.bench.data import noisy_domain, target_domain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--components", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--draws", nargs="+", default=["1", "2", "3"])
    parser.add_argument("--rate", type=float, default=0.4)
    arguments = parser.parse_args()
    root, work = Path(os.environ["ROBUSTDA_DATA"]), Path("runs/bench")
    print("| components | label noise, mean | each draw, A→W and A→D | clean labels, mean |\n|---|---|---|---|")
    for components in arguments.components:
        scores = {"label": [], "none": []}
        for noise, rate, draws in (("label", arguments.rate, arguments.draws), ("none", 0.0, ["authors"])):
            for draw in draws:
                source = noisy_domain(root, "features", "amazon", noise, rate, draw, work)
                for target in ("webcam", "dslr"):
                    model = Concord(components=components, members=1)
                    model.fit(source, target_domain(root, "features", target), device="cpu", progress=False)
                    scores[noise].append(100 * model.summary_["target_accuracy"])
        each = ", ".join(f"{score:.1f}" for score in scores["label"])
        print(f"| {components} | {np.mean(scores['label']):.1f} | {each} | {np.mean(scores['none']):.1f} |", flush=True)


if __name__ == "__main__":
    main()
