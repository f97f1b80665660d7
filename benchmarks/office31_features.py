"""Office-31 on frozen features, two threads a run: source-only, MDD and RDA, with the noise rate given and estimated.

    ROBUSTDA_DATA=... python benchmarks/office31_features.py [--kind label --rate 0.4 --seeds 0 1 2 --jobs 1]

Accuracy is that of the final iteration. Finished runs are kept in --out and not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

TASKS = ["A-W", "W-A", "A-D", "D-A", "W-D", "D-W"]
ROWS = {
    "source_only": {"method": "source_only"},
    "mdd": {"method": "mdd"},
    "rda, rate given": {"method": "rda", "noise_rate": "given"},
    "rda, rate estimated": {"method": "rda", "noise_rate": "auto"},
    "rda (paper), rate estimated": {"method": "rda", "noise_rate": "auto", "variant": "paper"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", default="label")
    parser.add_argument("--rate", type=float, default=0.4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--rows", nargs="+", default=list(ROWS))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, each with two threads")
    parser.add_argument("--out", type=Path, default=Path("runs/office31_features"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        run_one(**json.loads(arguments.one))
        return
    shared = {"kind": arguments.kind, "rate": arguments.rate, "steps": arguments.steps, "device": arguments.device}
    cells = [
        {"row": row, "task": task, "seed": seed, "out": str(arguments.out), **shared}
        for seed in arguments.seeds
        for row in arguments.rows
        for task in arguments.tasks
    ]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(in_own_process, cells))
    report(arguments, cells)


def in_own_process(cell: dict[str, object]) -> None:
    """Each run in a process of its own: the threads of one must not wait for those of another."""
    if summary_file(cell).exists():
        return
    if cell["device"] != "cpu":
        run_one(**cell)  # type: ignore[arg-type]
        return
    environment = os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    subprocess.run([sys.executable, __file__, "--one", json.dumps(cell)], env=environment, check=True)


def run_one(row: str, task: str, seed: int, kind: str, rate: float, steps: int, device: str, out: str) -> None:
    from robustda.data.catalog import office31_draw, office31_features, parse_task
    from robustda.methods import create_method

    root = Path(os.environ["ROBUSTDA_DATA"])
    source_name, target_name = parse_task(task)
    source = office31_draw(root, source_name, kind, rate).apply(office31_features(root, source_name))
    settings = dict(ROWS[row])
    if settings.get("noise_rate") == "given":
        settings["noise_rate"] = rate  # type: ignore[assignment]
    method = create_method(str(settings.pop("method")), seed=seed, steps=steps, **settings)
    folder = summary_file(locals()).parent
    method.fit(source, office31_features(root, target_name), out=folder, device=device, threads=2, tensorboard=False)
    (folder / "model.safetensors").unlink()  # a table needs only the numbers


def summary_file(cell: dict[str, object]) -> Path:
    name = "-".join(str(cell[key]) for key in ("kind", "rate", "steps", "row", "task", "seed"))
    return Path(str(cell["out"])) / name.replace(" ", "_").replace(",", "") / "summary.json"


def report(arguments: argparse.Namespace, cells: list[dict[str, object]]) -> None:
    print(f"Office-31, frozen ResNet-50 features, {arguments.kind} noise {arguments.rate}, {arguments.steps} steps, ")
    print(
        f"target accuracy in %, final iteration, mean over {len(arguments.seeds)} seeds (± between seeds' averages)\n"
    )
    print("| method | " + " | ".join(arguments.tasks) + " | average | seconds a task |")
    print("|---|" + "---|" * (len(arguments.tasks) + 2))
    for row in arguments.rows:
        found = {(c["task"], c["seed"]): json.loads(summary_file(c).read_text()) for c in cells if c["row"] == row}
        table = np.array(
            [[100 * found[task, seed]["target_accuracy"] for task in arguments.tasks] for seed in arguments.seeds]
        )
        seconds = np.mean([summary["seconds"] for summary in found.values()])
        cellsof = " | ".join(f"{value:.1f}" for value in table.mean(axis=0))
        print(f"| {row} | {cellsof} | **{table.mean():.1f}** ± {table.mean(axis=1).std():.1f} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
