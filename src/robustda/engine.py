"""Where a run happens: device, precision, threads; and one training step, run eagerly or captured and replayed.

The step is written once. On a CPU it runs as it is; on a GPU the first few steps run as they are too, and from then on
the recorded kernels are replayed, which spares the launches. Nothing in it waits for the host: the row numbers of the
batch and the step counter are tensors on the device, schedules are functions of that counter, and what is logged adds
up on the device until it is asked for.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from robustda.data.batches import Order, Stream, Views, derive_seed
from robustda.descent import Descent
from robustda.errors import ConfigError
from robustda.layers import Wide
from robustda.methods.base import Batch, Method, Phase, Task
from robustda.nets import Backbone
from robustda.profile import Profile
from robustda.ranks import Ranks, alone
from robustda.tracking import tracker_names

__all__ = ["Runtime", "Stepper", "few_threads", "place"]

_EAGER_STEPS = 4  # steps that run uncaptured on a GPU, so that libraries have made their plans before the recording
_ONE_AT_A_TIME = threading.RLock()  # all threads of a process draw from the same generator of PyTorch's
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How a run is carried out. Nothing but select and rollback changes what is learned, but for rounding.

    Parameters
    ----------
    device: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.
    precision: float32 or bfloat16; auto is bfloat16 where the device has instructions for it. On a GPU that concerns
        the backbone, and the heads' products are made of TF32 numbers; on a CPU, if left to auto, it concerns the
        products in wide layers of the heads while they train, and features that clarity makes once. Losses and weights
        are always float32.
    placement: keep the data on the device, or stream them to it batch by batch; auto keeps what takes up no more than
        half of the free memory there.
    threads: CPU threads, of PyTorch and of NumPy (0: as these decide).
    capture: record the training step and replay it (GPU only, one process, not in pieces).
    compile: have torch.compile make few kernels of the backbone's training pass (GPU only, not in pieces): ResNet-50
        trains a third faster, twice as fast with batch_norm=keep. Needs a C compiler, and a minute at the first step;
        later processes find what was made in PyTorch's cache.
    pieces: run each batch through the backbone in so many pieces, which takes less memory and more time; the loss and
        its gradient are still those of the whole batch, but for batch norm inside the backbone.
    log_every: steps between two entries in the metrics.
    eval_every: steps between two evaluations of a labelled target (0: only at the end).
    select: keep the network of the last step, or of the evaluation that a criterion without target labels likes best:
        im, snd, bnm or dev (see `robustda.select`). The first three are logged at every evaluation in any case.
    criteria: all logs dev at every evaluation, too, for which part of the source is looked at as well.
    rollback: if training diverges, go back to the last good checkpoint once, and on at so large a share of the learning
        rate, such as .1 (0: stop and say why).
    checkpoint_seconds: least time between two checkpoints, which are made at entries in the metrics.
    stages: a folder of stages that runs share: a curriculum for the same source and settings is done once in it.
    track: where the curves go beside metrics.csv: tensorboard (into the run folder), mlflow, wandb, several with commas
        between them, or none.
    tensorboard: false leaves TensorBoard out, whatever track says.
    progress: show progress bars (on a terminal).
    profile: write where the time went into the run folder: profile.csv, timeline.csv, and a trace of ten steps.
    """

    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    placement: Literal["auto", "device", "stream"] = "auto"
    threads: int = 0
    capture: bool = True
    compile: bool = False
    pieces: int = 1
    log_every: int = 50
    eval_every: int = 500
    select: Literal["last", "im", "snd", "bnm", "dev"] = "last"
    criteria: Literal["quick", "all"] = "quick"
    rollback: float = 0.0
    checkpoint_seconds: float = 60.0
    stages: str | None = None
    track: str | list[str] = "tensorboard"
    tensorboard: bool = True
    progress: bool = True
    profile: bool = False

    def __post_init__(self) -> None:
        for name in ("log_every", "pieces"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: give a number of at least 1")
        if not 0 <= self.rollback < 1:
            raise ConfigError(
                f"rollback is {self.rollback}: give a share of the learning rate from 0 to 1, less than 1"
            )
        for name in ("threads", "eval_every", "checkpoint_seconds"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: give a number of at least 0")

        tracker_names(self.track)

    def trackers(self) -> list[str]:
        """The trackers to use."""
        return [name for name in tracker_names(self.track) if self.tensorboard or name != "tensorboard"]

    def torch_device(self) -> torch.device:
        """The device to use."""
        ranks = Ranks.of_environment()
        own = f"cuda:{ranks.local % max(1, torch.cuda.device_count())}" if ranks.size > 1 else "cuda"
        if self.device == "auto":
            return torch.device(own if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(own if self.device == "cuda" else self.device)
            torch.zeros(1, device=device).item()  # a device that keeps no numbers, meta, has none to give back
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(
                f"device {self.device!r} cannot be used here: give cpu, or auto to let it choose"
            ) from error
        return device

    def resident(self) -> bool | None:
        """Whether the data live on the device; None where their size is to decide."""
        return None if self.placement == "auto" else self.placement == "device"

    def bfloat16(self, device: torch.device) -> bool:
        """Whether the backbone computes in bfloat16."""
        return self.precision == "bfloat16" or (self.precision == "auto" and device.type == "cuda")

    def bfloat16_products(self, device: torch.device) -> bool:
        """Whether wide layers of the heads train with products in bfloat16: a CPU's time goes there."""
        return device.type == "cpu" and (
            self.precision == "bfloat16" or (self.precision == "auto" and _cpu_has_bfloat16())
        )

    @contextmanager
    def limits(self) -> Iterator[None]:
        """Set the number of threads for the time of a run, and leave the caller's random numbers as they were.

        Runs in several threads of a process wait for each other: each would draw the random numbers of the others.
        """
        device = self.torch_device()
        with _ONE_AT_A_TIME:
            before, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
            threads = min(self.threads, os.cpu_count() or 1)
            if threads:
                torch.set_num_threads(threads)
            if device.type == "cpu":
                _keep_freed_memory()
            if self.bfloat16(device) and device.type == "cuda":
                torch.set_float32_matmul_precision("high")
            try:
                with (
                    few_threads(threads) if threads else nullcontext(),
                    torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
                ):
                    yield
            finally:
                torch.set_num_threads(before)
                torch.set_float32_matmul_precision(products)


def few_threads(count: int) -> AbstractContextManager[Any]:
    """Hold NumPy's and SciPy's linear algebra to so many threads, from now on or, as a context, for a time."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(count, user_api="blas")
    return limits


def place(network: torch.nn.Module, device: torch.device, runtime: Runtime | None = None) -> None:
    """Move a network to its device, in the layout and precision that suit it there; float32 without a runtime."""
    network.to(device)
    for backbone in (layer for layer in network.modules() if isinstance(layer, Backbone)):
        if device.type == "cuda":
            backbone.to(memory_format=torch.channels_last)
        backbone.low_precision = runtime is not None and runtime.bfloat16(device)
    low = runtime is not None and runtime.bfloat16_products(device)
    for layer in network.modules():
        if isinstance(layer, Wide):
            layer.low_precision = low and layer.is_wide


@functools.cache
def _keep_freed_memory() -> None:
    """Have the C library keep what is freed for the next step, instead of fetching it page by page again.

    Gradients and casts of a step are a few large blocks, which glibc hands back to the system as soon as they are
    freed; on vectors that costs a tenth of the step. Elsewhere (macOS, Windows, musl) there is nothing to do.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@functools.cache
def _cpu_has_bfloat16() -> bool:
    """Instructions for products in bfloat16, without which they are slower than float32's."""
    known = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return any(ask is not None and bool(ask()) for ask in known)


class Stepper:
    """The training step of a phase, and the totals of what it reports."""

    def __init__(
        self,
        phase: Phase,
        task: Task,
        method: Method,
        *,
        capture: bool,
        profile: Profile | None = None,
        ranks: Ranks = alone,
        rate_share: float = 1.0,
    ) -> None:
        self.rate_share = rate_share
        self.phase, self.task, self.method, self.ranks = phase, task, method, ranks
        self._profile = profile or Profile(task.device, on=False)
        device, size = task.device, method.batch_size
        seed = (method.seed, phase.name)
        rows = torch.arange(len(task.source)) if phase.rows is None else phase.rows
        self._source = Order(rows, size, device, *seed, "source")
        self._target = Order(torch.arange(len(task.target)), size, device, *seed, "target")
        self._source_rows = torch.zeros(size, dtype=torch.long, device=device)
        self._target_rows = torch.zeros(size, dtype=torch.long, device=device)
        self._streams = [
            Stream(inputs, order, size)
            for inputs, order, used in (
                (task.source, self._source, True),
                (task.target, self._target, phase.uses_target),
            )
            if used and not inputs.resident
        ]
        self._views = Views(task.source, size * (1 + phase.uses_target), device, *seed)
        self._views_now = torch.zeros_like(self._views.batch(0))
        self._counter = torch.zeros((), device=device)
        self.optimizer = Descent(
            method.parameter_groups(phase.network),
            phase.network,
            device=device,
            momentum=method.momentum,
            weight_decay=method.weight_decay,
        )
        self._names: list[str] = []
        self._totals = torch.zeros(0, device=device)
        self._counted = 0
        self._carried: dict[str, Tensor] = {}
        self._capture = capture and device.type == "cuda" and ranks.size == 1
        self._ran = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, step: int) -> None:
        """Do step number `step`. All randomness in it is a function of the seed, the phase and this number."""
        seed = derive_seed(self.method.seed, self.phase.name, "step", step)
        self._source_rows.copy_(self._source.batch(step), non_blocking=True)
        if self.phase.uses_target:
            self._target_rows.copy_(self._target.batch(step), non_blocking=True)
        self._views_now.copy_(self._views.batch(step), non_blocking=True)
        for stream in self._streams:
            stream.load(step)
        self._counter.fill_(step)
        if self.task.device.type == "cuda":
            torch.cuda.default_generators[self.task.device.index or 0].manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)
        if self._capture and self._graph is None and self._ran >= _EAGER_STEPS:
            self._record()
        if self._graph is not None:
            with self._profile.section("step: replay", wait=False):
                self._graph.replay()
        else:
            self._step(self._profile)
        self._ran += 1
        self._counted += 1

    def state(self) -> dict[str, Tensor]:
        """What the next report will be made of."""
        totals = dict(zip(self._names, self._totals, strict=True))
        return {f"total/{name}": total for name, total in totals.items()} | {"counted": torch.tensor(self._counted)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up where `state` left off."""
        self._counted = int(state.pop("counted", 0))
        self._carried = {name.removeprefix("total/"): total for name, total in state.items()}

    def report(self) -> dict[str, float]:
        """The means since the last report. Waits for the device."""
        means = (self._totals / max(1, self._counted)).tolist()
        self._totals.zero_()
        self._counted = 0
        return dict(zip(self._names, means, strict=True))

    def _step(self, profile: Profile) -> None:
        progress = self._counter / self.phase.steps
        with profile.section("step: gather and augment"):
            batch = self._batch()
        self.optimizer.zero_grad(set_to_none=True)
        with profile.section("step: forward"):
            terms = self.phase.loss(batch, progress)
        with profile.section("step: backward"):
            terms["loss"].backward()  # type: ignore[no-untyped-call]
            self.ranks.add_up(self.phase.network)
        with profile.section("step: optimiser"):
            rate = self.phase.learning_rate(progress)
            rate = rate if self.rate_share == 1 else rate * self.rate_share
            for group in self.optimizer.param_groups:
                group["lr"].copy_(torch.as_tensor(rate * group["share"]))
            self.optimizer.descend()
        if not self._names:
            self._names = list(terms)
            before = [self._carried.get(name, torch.zeros(())) for name in terms]
            self._totals = torch.stack(before).to(self.task.device)
        self._totals += torch.stack([term.detach().float() for term in terms.values()])

    def _batch(self) -> Batch:
        rows, task, views = self._source_rows, self.task, self._views_now
        streamed = iter(self._streams)
        source = task.source.gather(rows) if task.source.resident else next(streamed).now
        if not self.phase.uses_target:
            source = task.source.augmented(source, views)
            return Batch(source, task.labels.index_select(0, rows), rows, source[:0])
        target = task.target.gather(self._target_rows) if task.target.resident else next(streamed).now
        # Augmented together: on a GPU the small operations of it cost as much for one domain as for two.
        both = task.source.augmented(torch.cat([source, target]), views)
        count = len(rows)
        return Batch(both[:count], task.labels.index_select(0, rows), rows, both[count:], both)

    def _record(self) -> None:
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step(Profile(self.task.device, on=False))  # nothing can be waited for while it is recorded
