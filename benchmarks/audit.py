"""What is the evidence of the audit worth? Noise rates, wrong labels found, corrupted images told apart.

    ROBUSTDA_DATA=... python benchmarks/audit.py [--tables rates found simulated mixed] [--draws 2]

rates: Office-31 features with the authors' label draws and with none, every estimator with its interval.
found: the wrong labels among them, by label evidence, by its witnesses alone (without what all labels say together), by
the vote of ten neighbours and, where it is installed, by cleanlab on the five-fold predictions of logistic regression;
on the authors' draws, on simulated pair noise and on noise that differs from class to class.
simulated: the estimators on known noise of several kinds, rates and numbers of classes; how often intervals hold.
mixed: the authors' mixed draws at 40 %, images and their features corrupted: what `robustda audit` makes of them, which
labels look right to it, and whom `keep` keeps; `--features` names a folder with the corrupted images' features.
The rules were chosen on simulated draws, and the authors' are for reporting only; but what all labels say together was
tried on both.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np

from robustda import Domain, audit
from robustda.data.catalog import office31_draw, office31_features, office31_images
from robustda.features import extract_features
from robustda.noise import corrupt_labels, transition_matrix
from robustda.noise.evidence import label_evidence
from robustda.noise.transition import estimate_noise

DOMAINS = ("amazon", "dslr", "webcam")
ESTIMATORS = ("confident", "likelihood", "anchor", "mixture", "combined")


def main() -> None:
    tables = {"rates": rates, "found": found, "simulated": simulated, "mixed": mixed}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=list(tables), choices=list(tables))
    parser.add_argument("--features", type=Path, default=None, help="folder of {domain}_mixed_0.4_authors.npz")
    parser.add_argument("--draws", type=int, default=2, help="simulated draws of each kind")
    parser.add_argument(
        "--data", nargs="+", default=["amazon", "dslr", "webcam", "digits", "blobs5", "blobs20", "blobs100"]
    )
    arguments = parser.parse_args()
    for name in arguments.tables:
        tables[name](arguments)
        print(flush=True)


def rates(arguments: argparse.Namespace) -> None:
    print(
        "| domain | nominal | true | combined | interval | error | confident | likelihood | anchor | mixture | apart |"
    )
    print("|" + "---|" * 11)
    for domain in DOMAINS:
        clean = office31_features(None, domain)
        for rate in (0, 0.2, 0.4, 0.6, 0.8):
            labels = office31_draw(None, domain, "label", rate).apply(clean).y if rate else clean.y
            evidence = label_evidence(clean.x, labels, 31, together=False)
            report = estimate_noise(labels, evidence.pred_probs)
            best, true = report.combined, (labels != clean.y).mean()
            others = " | ".join(f"{report.estimates[name].overall:.3f}" for name in ESTIMATORS[:4])
            print(
                f"| {domain} | {rate} | {true:.3f} | {best.overall:.3f} | {best.interval[0]:.3f} to "
                f"{best.interval[1]:.3f} | {best.overall - true:+.3f} | {others} | {report.disagreement:.3f} |",
                flush=True,
            )


def found(arguments: argparse.Namespace) -> None:
    print("| noise | domain | wrong | called wrong | precision | recall | F1 | witnesses | ten neighbours | cleanlab |")
    print("|" + "---|" * 10)
    cases = [("clean", 0), *(("authors", rate) for rate in (0.2, 0.4, 0.6, 0.8))]
    cases += [("pair", 0.2), ("pair", 0.4), ("class", 0.4)]
    for kind, rate in cases:
        scores = []
        for domain in DOMAINS:
            clean = office31_features(None, domain)
            for seed in range(arguments.draws if kind in ("pair", "class") else 1):
                labels = clean.y
                if kind == "authors":
                    labels = office31_draw(None, domain, "label", rate).apply(clean).y
                elif kind != "clean":
                    labels = corrupt_labels(clean.y, matrix(kind, 31, rate, seed), seed)
                wrong = labels != clean.y
                called = label_evidence(clean.x, labels, 31).issues
                right = (called & wrong).sum()
                alone = label_evidence(clean.x, labels, 31, together=False).issues
                peers = [f1(alone, wrong), f1(neighbours_disagree(clean.x, labels), wrong)] if rate else [np.nan] * 2
                peers += [f1(cleanlab_issues(clean.x, labels), wrong) if rate else np.nan]
                scores.append([f1(called, wrong), *peers])
                print(
                    f"| {kind} {rate} | {domain} | {wrong.mean():.3f} | {called.mean():.3f} | "
                    f"{right / max(1, called.sum()):.3f} | {right / max(1, wrong.sum()):.3f} | "
                    + " | ".join(f"{value:.3f}" for value in scores[-1])
                    + " |",
                    flush=True,
                )
        if rate:
            print(f"| {kind} {rate} | mean | | | | | " + " | ".join(f"{v:.3f}" for v in np.mean(scores, axis=0)) + " |")


def simulated(arguments: argparse.Namespace) -> None:
    kinds = [("symmetric", r) for r in (0, 0.2, 0.4, 0.6)] + [(k, r) for k in ("pair", "class") for r in (0.2, 0.4)]
    kinds += [("one-sided", 0.3)]
    error: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    every: dict[str, list[list[float]]] = defaultdict(list)
    for name in arguments.data:
        x, true, n_classes = examples(name)
        for kind, rate in kinds:
            for seed in range(1 if name == "amazon" else arguments.draws):
                labels = corrupt_labels(true, matrix(kind, n_classes, rate, seed), 77 + seed)
                wrong, counts = labels != true, np.bincount(labels, minlength=n_classes)
                by_class = np.bincount(labels, weights=wrong, minlength=n_classes) / np.maximum(counts, 1)
                report = estimate_noise(labels, label_evidence(x, labels, n_classes, together=False).pred_probs)
                for which, estimate in {**report.estimates, "combined": report.combined}.items():
                    off = estimate.overall - wrong.mean()
                    low, high = estimate.intervals.T
                    covered = (low - 1e-9 <= by_class) & (by_class <= high + 1e-9)
                    per_class = np.average(np.abs(estimate.rates - by_class), weights=counts)
                    within = estimate.interval[0] - 1e-9 <= wrong.mean() <= estimate.interval[1] + 1e-9
                    error[which, kind, rate].append(off)
                    every[which].append([abs(off), within, per_class, np.average(covered, weights=counts)])
    print("| mean error of the rate | " + " | ".join(f"{kind} {rate}" for kind, rate in kinds) + " |")
    print("|" + "---|" * (len(kinds) + 1))
    for which in ESTIMATORS:
        print(f"| {which} | " + " | ".join(f"{np.mean(error[which, kind, rate]):+.3f}" for kind, rate in kinds) + " |")
    print("\n| | absolute error: mean | largest | interval holds | per class: mean | interval holds |")
    print("|---|---|---|---|---|---|")
    for which in ESTIMATORS:
        table = np.array(every[which])
        mean = table.mean(axis=0)
        print(f"| {which} | {mean[0]:.3f} | {table[:, 0].max():.3f} | {mean[1]:.2f} | {mean[2]:.3f} | {mean[3]:.2f} |")


def mixed(arguments: argparse.Namespace) -> None:
    columns = ["domain", "blurred: called so", "others: called so", "blurred and right: look right", "precision"]
    columns += [
        "blurred and right: kept",
        "blurred and wrong: kept",
        "others and right: kept",
        "kept in all",
        "precision",
    ]
    columns += ["authors' selection: blurred and right", "precision"]
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for domain in DOMAINS:
        record, clean = office31_draw(None, domain, "mixed", 0.4), office31_features(None, domain)
        images = record.apply(office31_images(None, domain))
        place = {name: row for row, name in enumerate(record.ids.tolist())}
        order = np.array([place[name] for name in images.ids.tolist()])
        hit, wrong = record.corrupted_features[order], record.wrong_labels[order]
        # Just what the command does, but that features of the untouched images are in the data folder already.
        found = audit(images, features=with_corrupted(clean, images, hit, domain, arguments.features))
        assert (found.source.ids == images.ids).all()
        seen, right, kept = found.corruption.corrupted, ~found.issues, found.kept
        authors = record.extra["kept_by_authors"][order].astype(int) > 0
        shares = (
            seen[hit].mean(),
            seen[~hit].mean(),
            right[hit & ~wrong].mean(),
            (~wrong)[right].mean(),
            kept[hit & ~wrong].mean(),
            kept[hit & wrong].mean(),
            kept[~hit & ~wrong].mean(),
            kept.mean(),
            (~wrong)[kept].mean(),
            authors[hit & ~wrong].mean(),
            (~wrong)[authors].mean(),
        )
        print(f"| {domain} | " + " | ".join(f"{share:.3f}" for share in shares) + " |", flush=True)


def with_corrupted(clean: Domain, images: Domain, hit: np.ndarray, domain: str, folder: Path | None) -> Domain:
    """The features, of the corrupted images new ones: from the folder that `robustda bench` fills, or made here."""
    if folder is not None:
        made = Domain.read(folder / f"{domain}_mixed_0.4_authors.npz")
    else:
        weights = str(Path(os.environ["ROBUSTDA_DATA"]) / "weights" / "resnet50_v1_imagenet.safetensors")
        how = {"backbone": "resnet50_v1", "weights": weights, "precision": "bfloat16", "pooling": "mean"}
        made = extract_features(images.take(np.flatnonzero(hit)), **how)
    place = {name: row for row, name in enumerate(clean.ids.tolist())}
    x = np.array(clean.x)
    x[[place[name] for name in made.ids.tolist()]] = made.x
    return Domain.from_arrays(x, ids=clean.ids)


@cache
def examples(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Features, true labels and the number of classes of a data set to simulate with."""
    if name in DOMAINS:
        domain = office31_features(None, name)
        return np.asarray(domain.x), np.asarray(domain.y), 31
    if name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return digits.data.astype(np.float32), digits.target, 10
    n_classes = int(name.removeprefix("blobs"))
    rng = np.random.default_rng(n_classes)
    true = rng.permutation(np.arange(max(600, 30 * n_classes)) % n_classes)
    centres = rng.normal(size=(n_classes, 20)) * 1.6
    return (centres[true] + rng.normal(size=(len(true), 20))).astype(np.float32), true, n_classes


def matrix(kind: str, n_classes: int, rate: float, seed: int) -> np.ndarray:
    """T; `class` has rates from 0 to twice the rate, and each class loses to a few others."""
    if kind in ("symmetric", "pair"):
        return transition_matrix(kind, n_classes, rate)
    transition = np.eye(n_classes)
    if kind == "one-sided":
        transition[1, 1], transition[1, 2] = 1 - rate, rate
        return transition
    rng = np.random.default_rng(1000 + seed)
    for k, loss in enumerate(np.clip(rng.uniform(0, 2 * rate, n_classes), 0, 0.75)):
        others = np.delete(np.arange(n_classes), k)
        transition[k, others] = loss * rng.dirichlet(np.full(n_classes - 1, 0.2))
        transition[k, k] = 1 - loss
    return transition


def neighbours_disagree(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The plain rival: the label differs from the most frequent one among ten neighbours by cosine."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    near = labels[np.argpartition(cosine, -10, axis=1)[:, -10:]]
    votes = (near[:, :, None] == np.arange(labels.max() + 1)).sum(axis=1)
    return votes.argmax(axis=1) != labels


def cleanlab_issues(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """cleanlab's default on five-fold logistic regression; nothing found where it is not installed."""
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return np.zeros(len(labels), dtype=bool)
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    model, folds = LogisticRegression(C=10, max_iter=200), StratifiedKFold(5, shuffle=True, random_state=0)
    return find_label_issues(labels, cross_val_predict(model, unit, labels, cv=folds, method="predict_proba"), n_jobs=1)


def f1(called: np.ndarray, wrong: np.ndarray) -> float:
    return float(2 * (called & wrong).sum() / max(1, called.sum() + wrong.sum()))


if __name__ == "__main__":
    main()
