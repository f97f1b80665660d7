"""Two classes, one of them rare: so many of Office-31's classes against all others.

    ROBUSTDA_DATA=... python benchmarks/rare.py [--classes 1 3 10] [--rates 0 0.2]

Target accuracy of the final iteration and, behind a stroke, the mean over both classes, in %, on plain features: of
logistic regression the better of two strengths (by accuracy on the target, so an oracle's choice), of clarity with and
without kinds (`--kinds none`), in brackets how much it expects of itself. A share of the source's labels is the other
one. Which classes are the rare one is drawn (--draw).
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from robustda import Domain
from robustda.data.catalog import office31_features, parse_task
from robustda.methods import create_method
from robustda.noise.recipes import corrupt_labels, transition_matrix

CLASSES = 31


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["A-W", "W-A"])
    parser.add_argument("--classes", nargs="+", type=int, default=[1, 3, 10], help="how many are the rare one")
    parser.add_argument("--rates", nargs="+", type=float, default=[0.0, 0.2])
    parser.add_argument("--draw", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the methods")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| task | of 31 | rare in the target | wrong labels | logistic regression | clarity, no kinds | clarity |")
    print("|---" * 7 + "|")
    for task in arguments.tasks:
        for count in arguments.classes:
            rare = np.random.default_rng(arguments.draw).permutation(CLASSES)[:count]
            source, target = (of_two(office31_features(None, name), rare) for name in parse_task(task))
            for rate in arguments.rates:
                noisy = replace(source, y=corrupt_labels(source.y, transition_matrix("symmetric", 2, rate), 1))
                found = [
                    regression(noisy, target),
                    *(clarity(noisy, target, kinds, arguments.seed) for kinds in ("none", "auto")),
                ]
                share = np.mean(target.labels == "rare")
                print(f"| {task} | {count} | {share:.0%} | {rate:g} | " + " | ".join(found) + " |", flush=True)


def of_two(domain: Domain, rare: np.ndarray) -> Domain:
    return Domain.from_arrays(domain.x, np.where(np.isin(domain.y, rare), "rare", "usual"))


def regression(source: Domain, target: Domain) -> str:
    xs, xt = (domain.x / np.linalg.norm(domain.x, axis=1, keepdims=True) for domain in (source, target))
    models = [LogisticRegression(C=strength, max_iter=300).fit(xs, source.y) for strength in (1, 10)]
    best = max((model.predict(xt) for model in models), key=lambda said: (said == target.y).mean())
    return both(best, target)


def clarity(source: Domain, target: Domain, kinds: str, seed: int) -> str:
    model = create_method("clarity", seed=seed, kinds=kinds)
    model.fit(source, target, progress=False, tensorboard=False, eval_every=0)
    assert model.summary_ is not None
    expected = model.summary_["expected_accuracy"]["value"]
    codes = np.array([list(target.classes).index(name) for name in model.predict(target)])
    return f"{both(codes, target)} ({100 * expected:.0f})"


def both(said: np.ndarray, target: Domain) -> str:
    return f"{100 * (said == target.y).mean():.1f} / {100 * balanced_accuracy_score(target.y, said):.1f}"


if __name__ == "__main__":
    main()
