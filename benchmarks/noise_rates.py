"""What does noise_rate="auto" say, and whom does RDA's curriculum trust by it? Office-31 features, the authors' draws.

    ROBUSTDA_DATA=... python benchmarks/noise_rates.py [--noises label feature mixed] [--trust] [--work runs/bench]

For each domain and noise: the true share of wrong labels, the estimate, its error, and the mean error per class. With
--trust also stage 1 (half a minute a domain on one core): the share of the source that is trusted, how much of it is
labelled right, and how many of the corrupted images with a right label are in it; by the estimate with its doubts (what
RDA does), by the estimated rates alone, and by the true rates of the classes. Features of corrupted images are made
once, in the folder --work, where `robustda bench` keeps them too.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch

from robustda import RDA, Domain
from robustda.bench.data import data_root, noise_record, noisy_domain, prepare, target_domain
from robustda.curriculum import exam, kept_share
from robustda.noise.estimate import estimate_rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--domains", nargs="+", default=["amazon", "dslr", "webcam"])
    parser.add_argument("--noises", nargs="+", default=["label", "feature", "mixed"])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.2, 0.4, 0.6, 0.8], help="of label noise; else 0.4")
    parser.add_argument("--trust", action="store_true", help="train stage 1 and say whom it trusts")
    parser.add_argument("--work", type=Path, default=Path("runs/bench"))
    arguments = parser.parse_args()
    columns = ["domain", "noise", "true", "estimated", "error", "per class"]
    if arguments.trust:
        ways = ("as RDA does", "by the rates alone", "by the true rates")
        columns += [f"{way}: trusted, right, corrupted kept" for way in ways]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    root = data_root()
    for noise in arguments.noises:
        for rate in arguments.rates if noise == "label" else [0.4]:
            for name in arguments.domains:
                prepare(root, "features", name, noise, rate, "authors", arguments.work)
                source = noisy_domain(root, "features", name, noise, rate, "authors", arguments.work)
                record = noise_record(root, name, noise, rate, "authors")
                place = {identity: row for row, identity in enumerate(record.ids.tolist())}
                order = np.array([place[identity] for identity in source.ids.tolist()])
                wrong, hit = record.wrong_labels[order], record.corrupted_features[order]
                found = estimate_rates(source.x, source.y, len(source.classes), inputs=source.x)
                counts = np.bincount(source.y, minlength=len(found.rates))
                by_class = np.bincount(source.y, weights=wrong, minlength=len(counts)) / np.maximum(counts, 1)
                overall = np.average(found.rates, weights=counts)
                cells = [name, f"{noise} {rate:g}", f"{wrong.mean():.3f}", f"{overall:.3f}"]
                cells += [f"{overall - wrong.mean():+.3f}"]
                cells += [f"{np.average(np.abs(found.rates - by_class), weights=counts):.3f}"]
                if arguments.trust:
                    losses = stage_1(source, target_domain(root, "features", name))
                    for rates, doubted in ((found.rates, found.doubted), (found.rates, None), (by_class, None)):
                        trust = trusted(losses, source.y, rates, doubted)
                        kept = f"{trust[hit & ~wrong].mean():.3f}" if hit.any() else ""
                        cells += [f"{trust.mean():.3f}, {(~wrong)[trust].mean():.3f}, {kept}".removesuffix(", ")]
                print("| " + " | ".join(cells) + " |", flush=True)


def stage_1(source: Domain, target: Domain) -> np.ndarray:
    """Every example's mean loss over the epochs of the curriculum, which does not look at the target."""
    with TemporaryDirectory() as folder:
        RDA(steps=1, noise_rate=0.0).fit(source, target, out=folder + "/run")
        return pd.read_csv(folder + "/run/trust.csv")["mean_loss"].to_numpy()


def trusted(losses: np.ndarray, labels: np.ndarray, rates: np.ndarray, doubted: np.ndarray | None) -> np.ndarray:
    keep = kept_share(torch.from_numpy(rates), "authors")
    doubts = None if doubted is None else torch.from_numpy(doubted)
    return exam(torch.tensor(losses), torch.tensor(labels), keep, doubted=doubts).trust.numpy()


if __name__ == "__main__":
    main()
