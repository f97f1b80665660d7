"""What bfloat16 and captured steps cost in accuracy: RDA on images, both ways, over several seeds.

    ROBUSTDA_DATA=... python benchmarks/gpu_precision.py [--task A-W --seeds 0 1 2] [--out gpu_precision.json]

Both ways run the whole program, stage 1 included: in bfloat16 with steps that are recorded and replayed, as it does on
a GPU unless told otherwise, and in float32 with every step made anew. Some ten minutes on one H200.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

import torch

from robustda.data.catalog import office31_draw, office31_images, parse_task
from robustda.methods import create_method

WAYS: dict[str, dict[str, Any]] = {
    "bfloat16, captured": {"precision": "bfloat16"},
    "float32, eager": {"precision": "float32", "capture": False},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="A-W")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", default="gpu_precision.json")
    arguments = parser.parse_args()
    root = Path(os.environ["ROBUSTDA_DATA"])
    weights = str(root / "weights" / "resnet50_v1_imagenet.safetensors")
    source_name, target_name = parse_task(arguments.task)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    results = []
    for seed in arguments.seeds:
        for way, runtime in WAYS.items():
            source = office31_draw(root, source_name, "label", 0.4).apply(office31_images(root, source_name))
            target = office31_images(root, target_name)
            how = {"backbone": "resnet50_v1", "weights": weights, "steps": arguments.steps, "seed": seed}
            method = create_method("rda", **how).fit(source, target, eval_every=500, **runtime)
            curve = method.history_.query('metric == "target_accuracy"').value.round(4).tolist()
            results.append({"way": way, "task": arguments.task, "seed": seed, "device": device, "accuracy": curve})
            Path(arguments.out).write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))


def table(results: list[dict[str, Any]]) -> str:
    """Accuracy at the end of each run, and what one way has on average."""
    seeds = sorted({result["seed"] for result in results})
    lines = ["| | " + " | ".join(f"seed {seed}" for seed in seeds) + " | average |", "|---" * (len(seeds) + 2) + "|"]
    for way in WAYS:
        ends = [100 * result["accuracy"][-1] for result in results if result["way"] == way]
        lines.append(f"| {way} | " + " | ".join(f"{end:.1f}" for end in ends) + f" | {statistics.mean(ends):.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
