"""Speed on a CPU against peers, in one run: training steps, matrix products, confident joint, label issues.

    pip install -r benchmarks/requirements-peers.txt
    python benchmarks/cpu_peers.py [--threads 2 --steps 150 --rounds 5 --only dann mdd joint issues]
    python benchmarks/cpu_peers.py --quiet .1   # on a machine that others use too

Everybody has a process of their own, with the same number of threads, and they take turns: a busy moment of the machine
hits all of them. A ratio is that of the medians of one round, and the table has the median over the rounds, the lowest
and the highest, and the ratio of the fastest tenths of all steps. With `--quiet`, a turn during which other programs
took more than that share of the processors' time does not count and is taken again, as long as `--patience` lasts (on
Linux). A peer that is not installed is left out, and the table says so.

**Training steps.** 2048-vectors, 31 classes, 32 source and 32 target examples a step, as many of each as one epoch
needs; a time is what passes from one step to the next, loading included, setting up and evaluation not. A turn has 150
of them: real runs have thousands, and the first few touch all their memory for the first time. All train with
Nesterov SGD of the same rate, momentum and weight decay, and have the layers of `robustda.nets`, made of PyTorch's own
modules. What differs is each library's way:

- robustda runs `fit` as it is, which takes products in bfloat16 where the processor has instructions for them, and a
  second time with precision="float32". Its rate and β follow a schedule; the peers' are constant.
- skada runs `DANN(...).fit` and `MDD(...).fit` of `skada.deep`, which train by skorch. Its own domain classifier is
  narrower and ends in a softmax, so it is given ours, behind its gradient reversal, with the matching criterion. MDD's
  loss on the target is its own: it smooths the labels.
- pytorch-adapt has no MDD. Its DANN is `DANNHook` in the plain loop of its documentation, on the loader that it makes.
  Batch norm sees source and target apart, and the classifier sees the source only: its products are smaller than ours.
  Of today's setuptools it finds too little, hence the older one among the requirements.

**Matrix products.** All that one step needs, forward, by weight and by input, in the shapes of its layers, with nothing
around them and, as far as there is room, everything in the cache; f learns from the source alone, so its backward
products have half of the rows. "Of PyTorch" is `torch.mm` in float32, what the peers' steps are made of. "Of robustda"
are the same by its own means: bfloat16, or oneDNN where MKL is slow. They take a half to a quarter of that
time, while the update of float32 weights and momentum (20 bytes to and from memory for each weight) takes as long as
ever: the faster the products, the larger is a step beside them.

**Confident joint and label issues.** cleanlab's `compute_confident_joint(calibrate=False)` and
`find_label_issues(filter_by="confident_learning")` on the same float64 probabilities, and whether the answers are
identical. Issues are the examples that lie off the joint's diagonal and whose label is not the most probable class.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from peers import Turn, judge_labels, matrix_products, pytorch_adapt_steps, robustda_steps, skada_steps

PACKAGES = {"skada": "skada", "pytorch-adapt": "pytorch_adapt", "cleanlab": "cleanlab"}
STEPS = {"skada": skada_steps, "pytorch-adapt": pytorch_adapt_steps}
DANN_GOALS = {"skada": "≥ 2", "pytorch-adapt": "≥ 2.5"}
# The method, the width of its bottleneck and classifier (DANN's own of 256, and that of all methods here), the goals.
TRAINING = [("dann", 256, DANN_GOALS), ("dann", 1024, DANN_GOALS), ("mdd", 1024, {"skada": "≥ 1.5"})]
SIZES = [(100_000, 100), (1_000_000, 10)]


@dataclass
class Race:
    """One piece of work, who does it, and which of them to compare: ours, the other, the ratio that is wanted."""

    work: str
    entrants: dict[str, Callable[[], Turn]]
    comparisons: list[tuple[str, str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=150, help="training steps in a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quiet", type=float, default=1.0, help="others' share of the processors, above which to wait")
    parser.add_argument("--patience", type=float, default=600, help="seconds to wait for quiet, in all, for each work")
    parser.add_argument("--only", nargs="+", choices=["dann", "mdd", "joint", "issues"])
    parser.add_argument("--out", type=Path, default=Path("runs/cpu_peers.json"))
    arguments = parser.parse_args()
    races = [
        race for race in all_races(arguments.steps) if not arguments.only or race.work.split()[0] in arguments.only
    ]
    print("| work | who | against | ms | its ms | ratio | from | to | of the fastest tenths | goal |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    rows: list[dict[str, Any]] = []
    for race in races:
        found, others = run(race, arguments.rounds, arguments.threads, arguments.quiet, arguments.patience)
        for row in found:
            times = "| {work} | {who} | {against} | {ms:.1f} | {its_ms:.1f}".format(**row)
            ratios = "{says} | {lowest:.2f} | {highest:.2f} | {quiet:.2f} | {goal} |".format(**row)
            print(f"{times} | {ratios}", flush=True)
        print(f"during {race.work}, others took {others:.0%} of the processors' time", flush=True)
        rows += [row | {"others": others} for row in found]
    for name in [name for name in PACKAGES if not installed(name)]:
        print(f"{name} is not installed and was left out")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"machine": machine(arguments.threads), "rows": rows}, indent=1))


def all_races(steps: int) -> list[Race]:
    races = []
    for name, width, goals in TRAINING:
        ours = {"robustda": "auto", "robustda in float32": "float32"}
        entrants: dict[str, Callable[[], Turn]] = {}
        comparisons = []
        entrants["products of PyTorch"] = functools.partial(matrix_products, name, width, steps)
        for who, precision in ours.items():
            entrants[who] = functools.partial(robustda_steps, name, width, steps, precision)
            entrants[f"products of {who}"] = functools.partial(matrix_products, name, width, steps, precision)
            comparisons += [(who, peer, goal if who == "robustda" else "") for peer, goal in goals.items()]
            comparisons += [(who, "products of PyTorch", ""), (who, f"products of {who}", "≤ 1.5")]
        entrants |= {peer: functools.partial(STEPS[peer], name, width, steps) for peer in goals if installed(peer)}
        races.append(Race(f"{name} step, width {width:,}", entrants, comparisons))
    for kind in ("joint", "issues"):
        for size, n_classes in SIZES:
            names = ["robustda", "cleanlab"] if installed("cleanlab") else ["robustda"]
            entrants = {who: functools.partial(judge_labels, who, kind, size, n_classes) for who in names}
            races.append(Race(f"{kind} {size:,} × {n_classes}", entrants, [("robustda", "cleanlab", "≥ 2")]))
    return races


def run(race: Race, rounds: int, threads: int, quiet: float, patience: float) -> tuple[list[dict[str, Any]], float]:
    """Let everybody take their turns and compare those who are to be compared; and what others took of the machine."""
    seconds: dict[str, list[list[float]]] = {who: [] for who in race.entrants}
    answers: dict[str, str] = {}
    shares = []
    end = time.monotonic() + patience
    spawn = multiprocessing.get_context("spawn")
    pools = {who: ProcessPoolExecutor(1, spawn, torch.set_num_threads, (threads,)) for who in race.entrants}
    for number in range(rounds + 1):
        for who, entrant in race.entrants.items():
            while True:
                (found, answers[who]), share = pools[who].submit(watched, entrant).result()
                if number == 0 or share <= quiet or time.monotonic() > end:
                    break
                while watched(functools.partial(time.sleep, 0.3))[1] > quiet and time.monotonic() < end:
                    pass
            if number > 0:  # in the first round everybody warms up
                seconds[who].append(found)
                shares.append(share)
    for pool in pools.values():
        pool.shutdown()
    pairs = [pair for pair in race.comparisons if pair[1] in race.entrants]
    return [compare(race.work, *pair, seconds, answers) for pair in pairs], float(np.mean(shares))


def watched(work: Callable[[], Any]) -> tuple[Any, float]:
    """What comes of some work, and the share of the processors' time that went to other programs meanwhile."""
    start, busy, own = time.perf_counter(), busy_seconds(), time.process_time()
    found = work()
    others = busy_seconds() - busy - (time.process_time() - own)
    return found, max(0.0, others / (time.perf_counter() - start) / (os.cpu_count() or 1))


def busy_seconds() -> float:
    """How long the processors have been busy since the machine started; 0 where the system does not say (not Linux)."""
    counts = Path("/proc/stat")
    if not counts.exists():
        return 0.0
    user, nice, system, _, _, *interrupts = map(int, counts.read_text().split("\n", 1)[0].split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def compare(
    work: str, who: str, against: str, goal: str, seconds: dict[str, list[list[float]]], answers: dict[str, str]
) -> dict[str, Any]:
    slower = against.startswith("products")  # there the question is not how much faster we are
    mine, its = seconds[who], seconds[against]

    def ratio(ours: float, theirs: float) -> float:
        return ours / theirs if slower else theirs / ours

    ratios = [ratio(float(np.median(a)), float(np.median(b))) for a, b in zip(mine, its, strict=True)]
    row: dict[str, Any] = {"work": work, "who": who, "against": against, "goal": goal}
    row |= {"ms": 1000 * float(np.median(np.concatenate(mine))), "its_ms": 1000 * float(np.median(np.concatenate(its)))}
    row |= {"ratio": float(np.median(ratios)), "lowest": min(ratios), "highest": max(ratios)}
    row["quiet"] = ratio(*(float(np.quantile(np.concatenate(times), 0.1)) for times in (mine, its)))
    row["says"] = f"{row['ratio']:.2f} × {'the time' if slower else 'as fast'}"
    if answers[against]:
        row["same_answer"] = answers[against] == answers[who]
        row["says"] += ", same answer" if row["same_answer"] else ", ANOTHER ANSWER"
    return row


def installed(name: str) -> bool:
    return importlib.util.find_spec(PACKAGES[name]) is not None


def machine(threads: int) -> dict[str, Any]:
    names = ["torch", "numpy", *filter(installed, PACKAGES)]
    versions = {name: importlib.metadata.version(name) for name in names}
    return {"processor": processor(), "threads": threads, "python": platform.python_version(), "versions": versions}


def processor() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
