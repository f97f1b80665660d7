"""Wall time of a whole Office-31 task on a GPU: 30 epochs of stage 1, then N steps with six evaluations.

    ROBUSTDA_DATA=... python benchmarks/gpu_end_to_end.py [--task A-W --steps 3000] [--out gpu_end_to_end.json]

Once with a cold and once with a warm cache of decoded images. The time is that of `fit`, everything included but
Python's own start. --profile shows where it went, and makes it a little longer. With --compile the backbone is
compiled; what the compiler keeps on the disk is there from the second call of this script on.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch

from robustda.data.catalog import office31_draw, office31_images, parse_task
from robustda.methods import create_method


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="A-W")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--caches", nargs="+", default=["cold", "warm"])
    parser.add_argument("--profile", action="store_true", help="also note the sections of the run")
    parser.add_argument("--compile", action="store_true", help="have the backbone compiled")
    parser.add_argument("--out", default="gpu_end_to_end.json")
    arguments = parser.parse_args()
    root = Path(os.environ["ROBUSTDA_DATA"])
    weights = str(root / "weights" / "resnet50_v1_imagenet.safetensors")
    source_name, target_name = parse_task(arguments.task)
    results = []
    with tempfile.TemporaryDirectory() as cache:
        for state in arguments.caches:
            source = office31_draw(root, source_name, "label", 0.4).apply(office31_images(root, source_name))
            target = office31_images(root, target_name)
            if state == "warm":
                for domain in (source, target):
                    domain.decoded(256, cache_dir=cache)
            method = create_method("rda", backbone="resnet50_v1", weights=weights, steps=arguments.steps, seed=0)
            torch.cuda.reset_peak_memory_stats()
            with tempfile.TemporaryDirectory() as run:
                began = time.perf_counter()
                how = {"cache_dir": cache, "profile": arguments.profile, "eval_every": arguments.steps // 6}
                method.fit(source, target, out=run, compile=arguments.compile, **how)
                seconds = time.perf_counter() - began
            result = {
                "device": torch.cuda.get_device_name(),
                "task": arguments.task,
                "cache": state,
                "compiled": arguments.compile,
                "seconds": round(seconds, 1),
                "target_accuracy": method.summary_["target_accuracy"],
                "gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
                "sections": {name: round(spent, 2) for name, spent, _, _ in method.profile_},
            }
            results.append(result)
            print(json.dumps(result), flush=True)
            Path(arguments.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
