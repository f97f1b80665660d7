"""Images per second of the whole program, method by method, against the bare captured ResNet-50 step of the same batch.

    ROBUSTDA_DATA=... python benchmarks/gpu_step.py [--methods rda mdd ...] [--out gpu_step.json]

Office-31 A→W on images, ResNet-50, batch 32 + 32, as a user runs it: data on the device, augmentation, heads, losses,
optimiser, logging. Rates are taken from the run's own timeline without its first entries, so the start is not in them;
evaluation is switched off. The bare step is forward, cross-entropy, backward and SGD of the same network on one fixed
batch, bfloat16, channels-last, recorded as a CUDA graph and replayed; it is measured before and after all methods.
With --check it also compares the losses of recorded and of eager steps from the same seed. With --compile it measures
nothing but the bare step, as it is and with the backbone compiled, its batch norm learning and kept, and, kept, as a
part of the convolutions, which is how `fit` has it where nothing is compiled. With --glance it measures nothing but
how fast the network looks at images without learning, its layers as they are and its convolutions merged.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from pathlib import Path

import pandas as pd
import torch

from robustda.data.catalog import office31_draw, office31_images
from robustda.folding import fold
from robustda.glance import glancing
from robustda.methods import create_method
from robustda.nets import create_backbone

METHODS = ("source_only", "spl", "mentornet", "dan", "rtn", "dann", "adda", "mdd", "tcl", "rda")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--check", action="store_true", help="also compare recorded with eager steps")
    parser.add_argument("--compile", action="store_true", help="only the bare step, compiled and not")
    parser.add_argument("--glance", action="store_true", help="only looking at images, merged and not")
    parser.add_argument("--out", default="gpu_step.json")
    arguments = parser.parse_args()
    root = Path(os.environ["ROBUSTDA_DATA"])
    weights = str(root / "weights" / "resnet50_v1_imagenet.safetensors")
    if arguments.glance:
        merged_against_plain(weights, Path(arguments.out))
        return
    source = office31_draw(root, "amazon", "label", 0.4).apply(office31_images(root, "amazon"))
    target = office31_images(root, "webcam")
    if arguments.compile:
        compiled_against_plain(weights, Path(arguments.out))
        return
    bare = {size: bare_step(weights, size) for size in (32, 64)}
    lines: list[dict[str, object]] = []
    for name in arguments.methods:
        settings = {"del_ocl": True} if name == "rda" else {}  # stage 2 by itself
        method = create_method(name, backbone="resnet50_v1", weights=weights, steps=arguments.steps, seed=0, **settings)
        torch.cuda.reset_peak_memory_stats()
        with tempfile.TemporaryDirectory() as folder:
            method.fit(source, target, out=folder, eval_every=0, log_every=25, tensorboard=False, profile=True)
            timeline = pd.read_csv(Path(folder) / "timeline.csv")
        for phase, entries in timeline.groupby("phase", sort=False):
            if len(entries) < 4 or (name == "mentornet" and phase == "mentor"):
                continue
            images = 64 if phase == "adapt" and name not in ("source_only", "spl", "mentornet") else 32
            begin, end = entries.iloc[2], entries.iloc[-1]
            rate = images * (end.step - begin.step) / (end.seconds - begin.seconds)
            memory = torch.cuda.max_memory_allocated() / 2**30
            share = rate / bare[images]
            line = {
                "method": name,
                "phase": phase,
                "batch": images,
                "images_per_s": rate,
                "share": share,
                "gib": memory,
            }
            lines.append(line)
            print(f"{name:<12} {phase:<8} {rate:6.0f} images/s  {share:.1%} of bare, {memory:.1f} GiB", flush=True)
    after = {size: bare_step(weights, size) for size in (32, 64)}
    result = {"device": torch.cuda.get_device_name(), "bare_before": bare, "bare_after": after, "methods": lines}
    if arguments.check:
        result["captured_against_eager"] = captured_against_eager(source, target, weights)
    Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n")
    for size in bare:
        print(f"bare step, batch {size}: {bare[size]:.0f} images/s before, {after[size]:.0f} after")


def bare_step(
    weights: str, size: int, steps: int = 150, *, keep: bool = False, compiled: bool = False, folded: bool = False
) -> float:
    """Images per second of the recorded ResNet-50 training step alone; its batch norm kept, itself compiled if so."""
    torch.manual_seed(0)
    psi = create_backbone("resnet50_v1", (224, 224, 3), weights).cuda().to(memory_format=torch.channels_last)
    psi.keeps_statistics = keep
    psi.train()
    if compiled:
        psi.compile(dynamic=False)
    if folded:
        fold(torch.nn.ModuleDict({"backbone": psi}))
    head = torch.nn.Linear(psi.out_features, 31).cuda()
    parameters = [*psi.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)
    x = torch.rand(size, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    y = torch.arange(size, device="cuda") % 31

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(head(psi(x)).float(), y)
        loss.backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        graph.replay()
    torch.cuda.synchronize()
    return size * steps / (time.perf_counter() - began)


def compiled_against_plain(weights: str, out: Path) -> None:
    """The bare step of 64 images in five ways."""
    found: dict[str, object] = {"device": torch.cuda.get_device_name()}
    for keep in (False, True):
        for compiled in (False, True):
            name = f"batch norm {'kept' if keep else 'learning'}, {'compiled' if compiled else 'as it is'}"
            rate = bare_step(weights, 64, keep=keep, compiled=compiled)
            found[name] = round(rate)
            print(f"{name:<36} {rate:6.0f} images/s", flush=True)
    found["batch norm kept, folded"] = round(rate := bare_step(weights, 64, keep=True, folded=True))
    print(f"{'batch norm kept, folded':<36} {rate:6.0f} images/s", flush=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


@torch.no_grad()
def merged_against_plain(weights: str, out: Path, size: int = 512, times: int = 60) -> None:
    """Images per second of a pass in which nothing is learned, and how far the outcomes are apart."""
    network = torch.nn.ModuleDict({"backbone": create_backbone("resnet50_v1", (224, 224, 3), weights)})
    network = network.cuda().to(memory_format=torch.channels_last).eval()
    network["backbone"].low_precision = True
    x = torch.rand(size, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    found: dict[str, object] = {"device": torch.cuda.get_device_name()}
    seen = {}
    for name, way in (("as it is", contextlib.nullcontext()), ("merged", glancing(network))):
        with way, torch.autocast("cuda", torch.bfloat16):
            for _ in range(10):
                seen[name] = network["backbone"](x).float()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(times):
                network["backbone"](x)
            torch.cuda.synchronize()
            found[name] = round(rate := size * times / (time.perf_counter() - began))
        print(f"looking, {name:<9} {rate:6.0f} images/s", flush=True)
    found["apart"] = float((seen["merged"] - seen["as it is"]).norm() / seen["as it is"].norm())
    print(f"relative difference of the features {found['apart']:.4f}")
    out.write_text(json.dumps(found, indent=1) + "\n")


def captured_against_eager(source: object, target: object, weights: str) -> dict[str, list[float]]:
    """Mean losses of four stretches of 25 steps, recorded and eager, from the same seed."""
    found = {}
    for name, capture in (("captured", True), ("eager", False)):
        method = create_method("mdd", backbone="resnet50_v1", weights=weights, steps=100, seed=0)
        method.fit(source, target, eval_every=0, log_every=25, capture=capture)
        history = method.history_
        found[name] = history[history.metric == "loss"].value.round(4).tolist()
    print(found)
    return found


if __name__ == "__main__":
    main()
