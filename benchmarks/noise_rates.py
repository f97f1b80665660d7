"""How well is the label-noise rate estimated? On Office-31 features with the authors' draws, and on no noise at all.

    ROBUSTDA_DATA=... python benchmarks/noise_rates.py

For each domain and rate: the true share of wrong labels, the estimate by counting confident-learning issues (what
noise_rate="auto" does) and by anchor points, both on the same cross-fitted predictions, and the mean error per class.
"""

from __future__ import annotations

import argparse

import numpy as np

from robustda.data.catalog import office31_draw, office31_features
from robustda.noise.estimate import cross_fit, noise_rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--domains", nargs="+", default=["amazon", "dslr", "webcam"])
    parser.add_argument("--rates", type=float, nargs="+", default=[0, 0.2, 0.4, 0.6, 0.8])
    arguments = parser.parse_args()
    print("| domain | nominal | true | confident | error | per class | anchor | error |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.domains:
        domain = office31_features(None, name)
        for rate in arguments.rates:
            labels = office31_draw(None, name, "label", rate).apply(domain).y if rate else domain.y
            wrong = labels != domain.y
            counts = np.bincount(labels, minlength=len(domain.classes))
            per_class = np.bincount(labels, weights=wrong, minlength=len(counts)) / counts
            probabilities = cross_fit(domain.x, labels, len(domain.classes))
            confident = noise_rates(labels, probabilities)
            anchor = noise_rates(labels, probabilities, method="anchor")
            overall, by_anchor = (float(np.average(found, weights=counts)) for found in (confident, anchor))
            print(
                f"| {name} | {rate} | {wrong.mean():.3f} | {overall:.3f} | {overall - wrong.mean():+.3f} | "
                f"{np.abs(confident - per_class).mean():.3f} | {by_anchor:.3f} | {by_anchor - wrong.mean():+.3f} |"
            )


if __name__ == "__main__":
    main()
