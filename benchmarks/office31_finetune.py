"""RDA fine-tuned on Office-31 images: how clean is what stage 1 trusts, how good is stage 2, how fast is the whole.

    ROBUSTDA_DATA=... python benchmarks/office31_finetune.py --tasks A-W D-A --steps 3000 --out results.json

Uses the authors' noise draws and, at 40 %, compares the trusted set with the one their stage 1 kept. Needs a GPU to be
done in minutes. Absolute times hold for the machine named in the output.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from robustda.data.catalog import office31_draw, office31_images, parse_task
from robustda.methods import create_method


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["A-W", "D-A", "W-D"])
    parser.add_argument("--methods", nargs="+", default=["rda"])
    parser.add_argument("--kind", default="label")
    parser.add_argument("--rate", type=float, default=0.4)
    parser.add_argument("--noise_rate", default="auto")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="further settings of the method")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--out", default="office31_finetune.json")
    arguments = parser.parse_args()
    root = Path(os.environ["ROBUSTDA_DATA"])
    weights = str(root / "weights" / "resnet50_v1_imagenet.safetensors")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    settings = {name: json.loads(value) for name, value in (pair.split("=", 1) for pair in arguments.set)}
    results = []
    for seed in arguments.seeds:
        for task in arguments.tasks:
            for name in arguments.methods:
                source_name, target_name = parse_task(task)
                record = office31_draw(root, source_name, arguments.kind, arguments.rate)
                source, target = record.apply(office31_images(root, source_name)), office31_images(root, target_name)
                extra = dict(settings)
                if name == "rda":
                    rate = arguments.noise_rate
                    extra["noise_rate"] = rate if rate == "auto" else float(rate)
                method = create_method(
                    name, backbone="resnet50_v1", weights=weights, steps=arguments.steps, seed=seed, **extra
                )
                began = time.perf_counter()
                method.fit(source, target, precision=arguments.precision)
                result = {"task": task, "device": device, **method.summary_, "settings": settings}
                result["curve"] = method.history_.query('metric == "target_accuracy"').value.round(4).tolist()
                result["wall_seconds"] = round(time.perf_counter() - began, 1)
                if name == "rda" and not method.del_ocl:
                    result |= compare_trust(record, method.trust_ > 0, source.ids)
                results.append(result)
                print(json.dumps(result), flush=True)
                Path(arguments.out).write_text(json.dumps(results, indent=2) + "\n")


def compare_trust(record: object, trusted: np.ndarray, ids: np.ndarray) -> dict[str, float]:
    """Label precision of what we trust, and of what the authors' stage 1 kept."""
    place = {name: number for number, name in enumerate(record.ids)}  # type: ignore[attr-defined]
    rows = np.array([place[name] for name in ids])
    right = ~record.wrong_labels[rows]  # type: ignore[attr-defined]
    found = {"trust_precision": round(float(right[trusted].mean()), 4), "trust_share": round(float(trusted.mean()), 4)}
    kept = record.extra.get("kept_by_authors") if hasattr(record, "extra") else None  # type: ignore[attr-defined]
    if kept is not None:
        kept = np.asarray(kept)[rows].astype(int) > 0
        found |= {
            "authors_precision": round(float(right[kept].mean()), 4),
            "authors_share": round(float(kept.mean()), 4),
        }
    return found


if __name__ == "__main__":
    main()
