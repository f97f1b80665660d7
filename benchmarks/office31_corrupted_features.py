"""Frozen ResNet-50 features of Office-31 with corrupted images, for the tables of feature and mixed noise.

    ROBUSTDA_DATA=... python benchmarks/office31_corrupted_features.py [--kinds feature mixed --rates 0.4]

Images are corrupted at their native size by the authors' recipe, at the places of their own draws. The features of the
other images are those in the data folder, which `robustda features` reproduces (tests/test_features.py), so only the
corrupted ones are computed: about ten a second on one core. What is there already is not done again. The same for one
draw in full: robustda features IMAGES --noise DRAW.csv --backbone resnet50_v1 --weights FILE --out FEATURES.npz
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from robustda.data.catalog import OFFICE_31, office31_draw, office31_features, office31_images
from robustda.features import extract_features


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=["feature", "mixed"])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.4])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("runs/office31_corrupted"))
    arguments = parser.parse_args()
    root = Path(os.environ["ROBUSTDA_DATA"])
    arguments.out.mkdir(parents=True, exist_ok=True)
    for rate in arguments.rates:
        for kind in arguments.kinds:
            for domain in (entry.name for entry in OFFICE_31.domains):
                file = arguments.out / f"{domain}_{kind}_{rate:g}.npz"
                if not file.exists():
                    count = extract(root, domain, kind, rate, arguments.device, file)
                    print(f"{file.name}: {count} corrupted images", flush=True)


def extract(root: Path, domain: str, kind: str, rate: float, device: str, file: Path) -> int:
    record = office31_draw(root, domain, kind, rate)
    images, clean = record.apply(office31_images(root, domain)), office31_features(root, domain)
    hit = np.flatnonzero(np.isin(images.ids, record.ids[record.corrupted_features]))
    found = extract_features(
        images.take(hit),
        backbone="resnet50_v1",
        weights=str(root / "weights" / "resnet50_v1_imagenet.safetensors"),
        device=device,
    )
    place = {name: row for row, name in enumerate(clean.ids)}
    x = np.array(clean.x)
    x[[place[name] for name in found.ids]] = found.x
    labels_only = replace(record, corrupted_features=np.zeros(len(record), dtype=bool))
    replace(labels_only.apply(clean), x=x).save_npz(file)
    return len(hit)


if __name__ == "__main__":
    main()
