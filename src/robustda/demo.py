"""The main job on the embedded task: printed digits, 40 % of them corrupted, to real handwritten ones. No download."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robustda.errors import ConfigError
from robustda.methods import create_method
from robustda.methods.base import Method

__all__ = ["METHODS", "STEPS", "demo_method", "run_demo"]

METHODS = ("source_only", "mdd", "rda", "clarity")
STEPS = 1000


def demo_method(name: str, seed: int, steps: int = STEPS) -> Method:
    """A method with the demo's settings: a small network, no augmentation; clarity is as `fit` has it by itself."""
    if name == "clarity":
        return create_method(name, steps=steps, seed=seed)
    extra: dict[str, float] = {} if name == "source_only" else {"beta_rise": 100.0}  # a short run: β must rise sooner
    if name == "rda":
        extra["epochs"] = 15
    return create_method(name, width=256, augment="none", steps=steps, seed=seed, **extra)


@dataclass(frozen=True)
class Outcome:
    """What the demo tells of one run."""

    accuracy: float
    caught: float | None = None
    precision: float | None = None
    source_precision: float | None = None
    noise_rate: float | None = None


def run_demo(out: Path, *, seeds: int = 3, steps: int = 0) -> dict[str, list[Outcome]]:
    """Run it and print what came out. Finished runs in `out` are taken as they are."""
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}: give a number of at least 1")
    from rich.console import Console

    console = Console()
    console.print("Source: printed digits; 20 % have a wrong label, 20 % are blurred and speckled.", highlight=False)
    console.print("Target: handwritten digits, without labels.\n", highlight=False)
    outcomes = _run_all(out, [(name, seed, steps or STEPS) for seed in range(seeds) for name in METHODS])
    _print(console, outcomes, out, seeds, steps or STEPS)
    return outcomes


def _run_all(out: Path, jobs: list[tuple[str, int, int]]) -> dict[str, list[Outcome]]:
    """Each run by itself on one core: so small a network gains nothing from more."""
    from rich.console import Console
    from rich.progress import track

    outcomes: dict[str, list[Any]] = {name: [None] * len(jobs) for name in METHODS}
    workers = min(os.cpu_count() or 1, len(jobs))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        # The longest first, so that no core waits for the other at the end.
        waiting = {
            pool.submit(_run_one, out, *job): job for job in sorted(jobs, key=lambda job: -METHODS.index(job[0]))
        }
        console = Console(stderr=True)
        for done in track(
            as_completed(waiting), "training", len(waiting), console=console, disable=not console.is_terminal
        ):
            name, seed, _ = waiting[done]
            outcomes[name][seed] = done.result()
    return {name: [outcome for outcome in found if outcome] for name, found in outcomes.items()}


def _run_one(out: Path, name: str, seed: int, steps: int) -> Outcome:
    from robustda.data.builtin import noisy_glyphs_to_digits

    source, target, record = noisy_glyphs_to_digits(seed=seed)
    method = demo_method(name, seed, steps)
    method.fit(source, target, out=_folder(out, name, seed, steps), threads=1, progress=False)
    accuracy = 100 * method.summary_["target_accuracy"]
    if name != "rda":
        return Outcome(accuracy)
    wrong, trusted = record.wrong_labels, method.trust_ > 0
    return Outcome(
        accuracy,
        caught=float((wrong & ~trusted).sum() / wrong.sum()),
        precision=float(1 - wrong[trusted].mean()),
        source_precision=float(1 - wrong.mean()),
        noise_rate=method.noise_rate_,
    )


def _print(console: Any, outcomes: dict[str, list[Outcome]], out: Path, seeds: int, steps: int) -> None:
    from rich.table import Table

    columns = [f"seed {seed}" for seed in range(seeds)]
    table = Table("method", *columns, "mean", title="Target accuracy, final iteration (%)")
    for name, runs in outcomes.items():
        values = [run.accuracy for run in runs]
        style = "bold" if name == "rda" else ""
        table.add_row(name, *(f"{value:.1f}" for value in values), f"{np.mean(values):.1f}", style=style)
    console.print(table)

    def mean(field: str) -> float:
        return float(np.mean([getattr(run, field) for run in outcomes["rda"]]))

    lines = (
        "",
        f"RDA's curriculum caught {mean('caught'):.0%} of the wrong labels:",
        f"{mean('precision'):.1%} of what it trusts is labelled right, where the source was at "
        f"{mean('source_precision'):.1%}.",
        f"It was not told how noisy the labels are; it estimated {mean('noise_rate'):.0%}.",
        "",
    )
    for line in lines:
        console.print(line, highlight=False)
    folder = _folder(out, "rda", 0, steps)
    console.print(f"The run folders are in {out}; begin with {folder / 'trust.csv'}", highlight=False, soft_wrap=True)


def _folder(out: Path, name: str, seed: int, steps: int) -> Path:
    return out / f"{name}-{steps}-steps-seed-{seed}"
