"""Where the time of a run went: a table of sections, a timeline of steps, and a trace of a few steps.

Written into the run folder by ``fit --profile``: profile.csv, timeline.csv, and for each phase operations-PHASE.txt and
trace-PHASE.json (for chrome://tracing or Perfetto). Sections are timed on the host. On a GPU the device is waited for
at their ends, so that each is charged with its own work; recorded steps are not waited for, and their time shows as
"wait for the device".
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from robustda.run import RunFolder

__all__ = ["Profile"]

_UNTIMED = nullcontext()
_TRACED = range(30, 40)  # steps of each phase that are traced, when all plans have been made


class Profile:
    """Counts the seconds of a run by section. When it is off, it costs nothing and writes nothing."""

    def __init__(self, device: torch.device, *, on: bool) -> None:
        self.on = on
        self._device = device
        self._began = time.perf_counter()
        self._seconds: dict[str, float] = {}
        self._calls: dict[str, int] = {}
        self._timeline: list[tuple[str, int, float]] = []
        self._tracer: Any = None
        self.traced: dict[str, Any] = {}

    def section(self, name: str, *, wait: bool = True) -> AbstractContextManager[None]:
        """Charge what happens inside to a section; without `wait` only what it takes the host to ask for it."""
        return self._timed(name, wait) if self.on else _UNTIMED

    @contextmanager
    def _timed(self, name: str, wait: bool) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            if wait:
                self._wait()
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - began
            self._calls[name] = self._calls.get(name, 0) + 1

    def entry(self, phase: str, step: int) -> None:
        """Note when a step was done that was waited for anyway."""
        if self.on:
            self._timeline.append((phase, step, time.perf_counter() - self._began))

    def step(self, phase: str, step: int) -> None:
        """Begin and end the trace at its steps."""
        if not self.on:
            return
        if step == _TRACED.start:
            from torch.profiler import ProfilerActivity, profile

            kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (self._device.type == "cuda")
            self._wait()
            self._tracer = profile(activities=kinds)
            self._tracer.start()
        elif step == _TRACED.stop:
            self.end(phase)

    def end(self, phase: str) -> None:
        """End the trace: after its steps, or with a phase that has fewer."""
        if self._tracer is not None:
            self._wait()
            self._tracer.stop()
            self.traced[phase] = self._tracer
            self._tracer = None

    def table(self) -> list[tuple[str, float, float, int]]:
        """Section, seconds, share of the whole, and how often; what no section was charged with comes last."""
        whole = time.perf_counter() - self._began
        lines = sorted(((n, s, s / whole, self._calls[n]) for n, s in self._seconds.items()), key=lambda line: -line[1])
        rest = whole - sum(self._seconds.values())
        return [*lines, ("other", rest, rest / whole, 1)]

    def write(self, folder: RunFolder | None) -> None:
        """The table, the timeline and the trace."""
        if not self.on or folder is None:
            return
        folder.write_csv("profile.csv", ("section", "seconds", "share", "calls"), self.table())
        folder.write_csv("timeline.csv", ("phase", "step", "seconds"), self._timeline)
        for phase, tracer in self.traced.items():
            tracer.export_chrome_trace(str(Path(folder.path) / f"trace-{phase}.json"))
            by = "self_cuda_time_total" if self._device.type == "cuda" else "self_cpu_time_total"
            operations = tracer.key_averages().table(sort_by=by, row_limit=30, max_name_column_width=60)
            (folder.path / f"operations-{phase}.txt").write_text(operations)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
