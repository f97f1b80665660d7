"""What structured and heavy label noise does to each method: Office-31 on frozen features, simulated draws.

    ROBUSTDA_DATA=... python benchmarks/structured_noise.py [--methods clarity rda ...] [--tasks A-W ...]
        [--noises pair class heavy instance alike] [--draws 1] [--out structured_noise.json]

pair: each label becomes that of the next class with probability .4. class: half of the classes have .7 of their labels
wrong, the others .1. heavy: 80 % of all labels are wrong, evenly. instance: an example's label is wrong with a
probability of its own, .4 ± .1, and which other class it has depends on its features, by a random linear map for each
class (Xia et al., Part-dependent Label Noise, NeurIPS 2020). alike: 30 % of the labels are that of the class which the
example resembles most beside its own, by logistic regressions that did not see it; those that resemble it more are more
often so labelled. Target accuracy of the final iteration, in %; no method is told a noise rate. What is in the file
already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import truncnorm
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from robustda import Domain
from robustda.data.catalog import office31_features, parse_task
from robustda.methods import create_method
from robustda.noise.recipes import corrupt_labels, transition_matrix

TASKS = ("A-W", "W-A", "A-D", "D-A", "W-D", "D-W")
METHODS = ("prototypes", "concord", "clarity", "mdd", "rda")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--noises", nargs="+", default=["pair", "class", "heavy", "instance", "alike"])
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--out", default="structured_noise.json")
    arguments = parser.parse_args()
    root, file = Path(os.environ["ROBUSTDA_DATA"]), Path(arguments.out)
    warnings.simplefilter("ignore")
    found = {tuple(line[:4]): line[4] for line in json.loads(file.read_text())} if file.exists() else {}
    for method in arguments.methods:
        for noise in arguments.noises:
            for task in arguments.tasks:
                for draw in range(arguments.draws):
                    key = (method, noise, task, draw)
                    if key not in found:
                        found[key] = run(root, *key)
                        file.write_text(json.dumps([[*key, value] for key, value in found.items()], indent=1) + "\n")
    for line in table(found, arguments):
        print(line)


def run(root: Path, name: str, noise: str, task: str, draw: int) -> float:
    """Target accuracy in %."""
    source, target = (office31_features(root, domain) for domain in parse_task(task))
    noisy = replace(source, y=given_labels(source, noise, draw))
    method = create_method(name, seed=draw)
    method.fit(noisy, target, progress=False, tensorboard=False, eval_every=0)
    return round(100 * float(method.summary_["target_accuracy"]), 2)


def given_labels(source: Domain, noise: str, draw: int) -> np.ndarray:
    """The labels of a source under this noise."""
    assert source.y is not None
    if noise not in ("instance", "alike"):
        return corrupt_labels(source.y, transition(noise, len(source.classes), draw), draw)
    x = np.asarray(source.x, dtype=np.float32)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return (by_features if noise == "instance" else by_resemblance)(x, source.y, np.random.default_rng(100 + draw))


def by_features(x: np.ndarray, labels: np.ndarray, rng: np.random.Generator, rate: float = 0.4) -> np.ndarray:
    n_classes = int(labels.max()) + 1
    rates = truncnorm(-rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1).rvs(len(labels), random_state=rng)
    x = (x - x.mean(axis=0)) / x.std()
    given = labels.copy()
    for k in range(n_classes):
        rows = np.flatnonzero(labels == k)
        scores = x[rows] @ rng.standard_normal((x.shape[1], n_classes)) * (2 / np.sqrt(x.shape[1]))
        scores[:, k] = -np.inf
        # The largest of scores and Gumbel draws is a draw from their softmax.
        others = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        given[rows] = np.where(rng.random(len(rows)) < rates[rows], others, k)
    return given


def by_resemblance(x: np.ndarray, labels: np.ndarray, rng: np.random.Generator, rate: float = 0.3) -> np.ndarray:
    model, rows = LogisticRegression(max_iter=200), np.arange(len(labels))
    scores = cross_val_predict(model, 8 * x, labels, cv=3, method="predict_log_proba")
    own = scores[rows, labels].copy()
    scores[rows, labels] = -np.inf
    margin = own - scores.max(axis=1)
    chosen = np.argsort(margin / margin.std() + rng.gumbel(size=len(labels)))[: int(rate * len(labels))]
    given = labels.copy()
    given[chosen] = scores.argmax(axis=1)[chosen]
    return given


def transition(noise: str, n_classes: int, draw: int) -> np.ndarray:
    """T of the noise; which classes are the bad ones differs from draw to draw."""
    if noise == "pair":
        return transition_matrix("pair", n_classes, 0.4)
    if noise == "heavy":
        return transition_matrix("symmetric", n_classes, 0.8)
    bad = np.random.default_rng(draw).permutation(n_classes) < n_classes // 2
    much, little = (transition_matrix("symmetric", n_classes, rate) for rate in (0.7, 0.1))
    return np.where(bad[:, None], much, little)


def table(found: dict[tuple[str, ...], float], arguments: argparse.Namespace) -> Iterator[str]:
    """One row a method and noise."""
    yield "| noise | method | " + " | ".join(arguments.tasks) + " | average |"
    yield "|---" * (len(arguments.tasks) + 3) + "|"
    for noise in arguments.noises:
        for method in arguments.methods:
            draws = range(arguments.draws)
            means = [np.mean([found[method, noise, task, draw] for draw in draws]) for task in arguments.tasks]  # type: ignore[index]
            yield f"| {noise} | {method} | " + " | ".join(f"{m:.1f}" for m in means) + f" | {np.mean(means):.1f} |"


if __name__ == "__main__":
    main()
