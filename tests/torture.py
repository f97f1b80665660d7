"""What happens to a run when something goes wrong: every fault at every moment, and what came of it, as a table.

``make torture`` runs all of it and writes docs/torture.md; tests/test_torture.py runs a small part of it.

A process that has imported everything forks a child for each start of a run, so that a start takes a fraction of a
second. A child is the command line itself: what it prints and its exit code are what a user would get. SIGKILL comes
either from outside at a random time, or from the child itself at a chosen event: the n-th training step, or before or
after the n-th fsync, rename or removal, so that the moments in which files change hands are hit as well.
"""

from __future__ import annotations

import collections
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from robustda.methods import create_method, method_names
from torture_bench import Bench, Child, Failed, at_event, stands_in, trained
from torture_faults import FAULTS, Row


def kills(bench: Bench, method: str, wanted: int, kind: str = "vectors") -> collections.Counter[tuple[str, str]]:
    """Kill runs of a method at random moments until there are so many kills and every phase was hit.

    Each run is killed up to three times, the first time in a phase that is due, and then resumed until it is done.
    Returns how often which phase was hit at which kind of moment.
    """
    bench.reference(method, kind)
    seconds, events = bench.lasted[method, kind]
    names = [build.__name__ for build in create_method(method).phases()]
    hit: collections.Counter[tuple[str, str]] = collections.Counter()
    for chain in itertools.count():
        if hit.total() >= wanted and {phase for phase, _ in hit} >= set(names):
            return hit
        out = bench.out()
        moment_file = out.parent / f"{out.name}.moment"
        part = (chain + bench.rng.random()) % len(names) / len(names)
        for attempt in range(3):
            moment_file.unlink(missing_ok=True)
            share = part if attempt == 0 else bench.rng.random()
            if bench.rng.random() < 0.6:
                ended = Child(bench.command(method, out, kind), at_event(int(share * events))).wait()
            else:
                child = Child(bench.command(method, out, kind))
                time.sleep(share * seconds)
                os.kill(child.pid, signal.SIGKILL)
                ended = child.wait()
            if ended.code != -signal.SIGKILL:  # it was done before
                break
            phase = "the end" if (out / "model.safetensors").exists() else names[stands_in(out)]
            hit[phase, moment_file.read_text() if moment_file.exists() else "any time"] += 1
        else:
            ended = Child(bench.command(method, out, kind)).wait()
        if ended.code != 0 or ended.printed:
            raise Failed(f"{method} does not go on after a kill (code {ended.code}): {ended.printed}")
        bench.compare(method, out, kind)
        shutil.rmtree(out)
    raise AssertionError


def report(hits: dict[str, collections.Counter[tuple[str, str]]], rows: list[Row], seconds: float) -> str:
    total = sum(hit.total() for hit in hits.values())
    lines = [
        "# What happens when something goes wrong",
        "",
        "Written by `make torture` (tests/torture.py), which stops at the first line that does not come out right.",
        "",
        f"**{total} kills** (SIGKILL) at random moments, over {len(hits)} methods; every run was resumed until done.",
        "Each ended bit for bit as the run that was never killed: weights, log, trust table, predictions; no entry",
        f"of the log is missing or there twice. {len(rows)} runs met another fault, below. {seconds:.0f} s in all.",
        "",
        "| method | phase | kills | at a step | at an entry of the log | at a sync, rename or removal | at any time |",
        "|---|---|---|---|---|---|---|",
    ]
    for method, hit in hits.items():
        for phase in dict.fromkeys(phase for phase, _ in sorted(hit)):
            moments: collections.Counter[str] = collections.Counter()
            for (where, moment), count in hit.items():
                if where == phase:
                    kind = "step" if "a step" in moment else "entry" if "entry" in moment else moment
                    moments["any" if moment == "any time" else kind if kind in ("step", "entry") else "file"] += count
            cells = " | ".join(str(moments[kind] or "") for kind in ("step", "entry", "file", "any"))
            lines.append(f"| {method} | {phase} | {moments.total()} | {cells} |")
    lines += [
        "",
        "*The end* is when the outcome is written. A kill before the first checkpoint counts for the first phase.",
    ]
    lines += ["", "| fault | moment | methods | outcome |", "|---|---|---|---|"]
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        grouped.setdefault((row.fault, row.moment, row.outcome), []).append(row.method)
    for (fault, moment, what), methods in grouped.items():
        lines.append(f"| {fault} | {moment} | {', '.join(methods)} | {what} |")
    return "\n".join([*lines, ""])


def main() -> int:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="SIGKILLs over all methods")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a fault's function, such as full_disk, or kills")
    parser.add_argument("--methods", nargs="*", default=method_names())
    parser.add_argument("--fault_methods", nargs="*", default=trained(), help="for the faults other than kills")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "torture.md")
    chosen = parser.parse_args()
    began = time.monotonic()
    hits: dict[str, collections.Counter[tuple[str, str]]] = {}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        bench = Bench.make(Path(place), chosen.seed)
        share = -(-chosen.kills // len(chosen.methods))
        if chosen.only in ("", "kills"):
            for method in chosen.methods:
                hits[method] = kills(bench, method, share)
                took = time.monotonic() - began
                print(f"{method}: {hits[method].total()} kills, resumed, equal ({took:.0f} s)", flush=True)
        for fault in FAULTS:
            if chosen.only in ("", fault.__name__):
                able = set(trained()) & set(chosen.methods)
                for row in fault(bench, [name for name in chosen.fault_methods if name in able]):
                    print(" · ".join(row), flush=True)
                    rows.append(row)
    text = report(hits, rows, time.monotonic() - began)
    print(text)
    if not chosen.only:
        chosen.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
