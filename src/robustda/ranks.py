"""Several processes, on one machine or many: ``torchrun`` or ``accelerate launch`` of the command that one would run.

    torchrun --nproc_per_node 4 -m robustda.cli fit --method rda --source web/ --target camera/ --out runs/a

What is learned does not depend on how many ranks there are, but for rounding. `batch_size` is that of the whole batch;
each rank runs its part of it through the backbone, where nearly all of the work is, and all exchange the features. From
there on every rank computes the same on the whole batch: the batch norm of the bottleneck, class balance, kernel
discrepancies, which couple all pairs of examples, and the choice of Q' are those of the global batch by construction.
The gradient flows back into each rank's own part; the backbones' gradients are added up, the others', equal already,
are averaged. Losses of stage 1 and evaluations run the same way and come back in the order of the examples, without
padding, so that thresholds and trust are equal on all ranks.

Batch norm inside the backbone is synchronised: its statistics are those of the whole batch. Dropout inside a backbone
draws other numbers on other numbers of ranks. A backbone without weights (vectors) is not divided: the ranks then gain
nothing. Recording of steps (CUDA graphs) is off. Rank 0 alone writes the run folder; a run may be resumed on any number
of ranks.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from robustda.errors import ConfigError, RobustDAError, RunError

__all__ = ["Lost", "Ranks", "alone"]

_PATIENCE = timedelta(minutes=30)  # rank 0 may be decoding images, or writing to a slow disk
_FAREWELL = timedelta(seconds=20)
_leavings = itertools.count()
Result = TypeVar("Result")
_GONE = re.compile("connection closed by peer|connection reset|timed out|aborted", re.IGNORECASE)


class Lost(RunError):
    """Another rank has ended in the middle of a run."""


@dataclass(frozen=True)
class Ranks:
    """The processes that fit together: how many, and which of them this one is."""

    rank: int = 0
    size: int = 1
    local: int = 0
    """which of the processes of this machine"""

    @classmethod
    def of_environment(cls) -> Ranks:
        """As torchrun, accelerate launch or a cluster's own launcher has set the environment."""
        try:
            size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
            local = int(os.environ.get("LOCAL_RANK", rank))
        except ValueError as error:
            raise ConfigError(f"WORLD_SIZE, RANK and LOCAL_RANK must be whole numbers ({error})") from error
        if size <= 1:
            return cls()
        if not 0 <= rank < size:
            raise ConfigError(f"RANK is {rank} and WORLD_SIZE {size}: start with torchrun or accelerate launch")
        return cls(rank, size, local)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    @contextmanager
    def joined(self, device: torch.device) -> Iterator[None]:
        """Meet the others; they stay together until the process ends. What a caller has set up is used as it is."""
        if self.size == 1:
            yield
            return
        try:
            if not dist.is_initialized():
                self._meet(device)
            yield
        except RuntimeError as error:
            if not _GONE.search(str(error)):
                raise
            raise Lost(
                f"rank {self.rank} of {self.size} has lost another one, which has failed or was ended: the same "
                "command takes the run up again"
            ) from error

    def _meet(self, device: torch.device) -> None:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        try:
            dist.init_process_group(backend, rank=self.rank, world_size=self.size, timeout=_PATIENCE)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise Lost(f"rank {self.rank} cannot meet the {self.size - 1} others ({reason})") from error
        atexit.register(_part)

    def check(self, batch_size: int) -> None:
        """Every rank needs an example of each batch."""
        if batch_size < self.size:
            raise ConfigError(f"a batch_size of {batch_size} cannot be divided among {self.size} ranks: make it larger")

    # Decisions that all must take alike.

    def largest(self, number: int) -> int:
        """The largest of the ranks' numbers; of flags, whether one of them is set."""
        if self.size == 1:
            return number
        found = torch.tensor(number)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return int(found)

    def of_first(self, content: bytes | None) -> bytes:
        """What rank 0 has, on all ranks. Bytes, and no objects: nothing that comes over the wire is executed."""
        if self.size == 1:
            return content or b""
        length = torch.tensor(len(content or b""))
        dist.broadcast(length, 0)
        data = torch.zeros(int(length), dtype=torch.uint8)
        if self.first and content:
            data = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        if len(data):
            dist.broadcast(data, 0)
        return data.numpy().tobytes()

    def first_says(self, ask: Callable[[], Result]) -> Result:
        """The answer of rank 0, as JSON; if it fails there, all end, and rank 0 says why."""
        answer: dict[str, Any] = {}
        failure: RobustDAError | None = None
        if self.first:
            try:
                answer = {"value": ask()}
            except RobustDAError as error:
                failure = error
        if self.size > 1:
            answer = json.loads(self.of_first(json.dumps(answer).encode()))
        if failure is not None:
            raise failure
        if "value" not in answer:
            raise SystemExit(2)
        return cast(Result, answer["value"])

    def one_after_the_other(self, work: Callable[[], Result]) -> Result:
        """The first process of each machine goes first: the others find in the cache what it has decoded."""
        if self.size == 1:
            return work()
        failure: BaseException | None = None
        result: list[Result] = []
        for turn in (self.local == 0, self.local != 0):
            if turn:
                try:
                    result.append(work())
                except RobustDAError as error:
                    failure = error
            if self.largest(failure is not None):
                raise failure or SystemExit(2)
        return result[0]

    def leave(self) -> None:
        """Wait until all have got here, without a collective: whoever ends closes connections on which another one may
        still be reading the last of what they exchanged. Nobody waits long for one that does not come."""
        if self.size == 1:
            return
        number = next(_leavings)
        names = [f"robustda/leaving/{number}/{rank}" for rank in range(self.size)]
        with contextlib.suppress(Exception):  # rank 0, which has the store, may be the first to see them all and end
            store = dist.distributed_c10d._get_default_store()
            store.set(names[self.rank], "here")
            store.wait(names, _FAREWELL)

    def tensors_of_first(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Named tensors of rank 0, on all ranks."""
        if self.size == 1:
            return tensors
        from safetensors.torch import load, save

        content = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}) if self.first else None
        content = self.of_first(content)
        return tensors if self.first else load(content)

    # The network.

    def divide(self, network: nn.Module) -> None:
        """Have the backbone of a network work on this rank's part of every batch, and hand out the whole."""
        backbone = getattr(network, "backbone", None)
        if self.size == 1 or backbone is None or not any(p.requires_grad for p in backbone.parameters()):
            return
        for layer in backbone.modules():
            if isinstance(layer, _BatchNorm):
                layer.forward = _Synchronised(layer)  # type: ignore[method-assign,assignment]
        backbone.forward = _Divided(self, backbone.forward)

    def undivide(self, network: nn.Module) -> None:
        """Leave a network that needs no other rank."""
        for layer in network.modules():
            if isinstance(layer.__dict__.get("forward"), _Divided | _Synchronised):
                del layer.forward

    def add_up(self, network: nn.Module) -> None:
        """Make the gradients those of the whole batch: the parts of a divided backbone are summed."""
        if self.size == 1:
            return
        backbone = getattr(network, "backbone", None)
        divided = backbone is not None and isinstance(backbone.forward, _Divided)
        parts = {id(p) for p in backbone.parameters()} if divided and backbone is not None else set()
        for summed in (True, False):
            gradients = [p.grad for p in network.parameters() if p.grad is not None and (id(p) in parts) == summed]
            if not gradients:
                continue
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat)
            if not summed:
                flat /= self.size
            pieces = torch.split(flat, [gradient.numel() for gradient in gradients])
            for gradient, piece in zip(gradients, pieces, strict=True):
                gradient.copy_(piece.view_as(gradient))


alone = Ranks()


def _part() -> None:
    with contextlib.suppress(Exception):  # whoever is gone already cannot be told
        dist.destroy_process_group()


class _Divided:
    """A backbone's forward pass over a rank's part of the batch, whose outcome is that of the whole batch."""

    def __init__(self, ranks: Ranks, forward: Callable[[Tensor], Tensor]) -> None:
        self._ranks, self._forward = ranks, forward

    def __call__(self, x: Tensor) -> Tensor:
        ranks, count = self._ranks, len(x)
        if count < ranks.size:  # the rest of an evaluation: not worth dividing
            return self._forward(x)
        sizes = [len(part) for part in torch.arange(count).tensor_split(ranks.size)]
        start = sum(sizes[: ranks.rank])
        # What the backbone draws must not move the random numbers on by more on one rank than on another.
        draws = (
            torch.default_generator if x.device.type == "cpu" else torch.cuda.default_generators[x.device.index or 0]
        )
        state = draws.get_state()
        draws.manual_seed(draws.initial_seed() + 1 + ranks.rank)
        own = self._forward(x[start : start + sizes[ranks.rank]])
        draws.set_state(state)
        return cast(Tensor, _Exchange.apply(own.float(), sizes, ranks.rank))


class _Exchange(torch.autograd.Function):
    """All ranks' rows, in order. Every rank computes the same loss of them: its own rows' gradient is all it needs."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, sizes: list[int], rank: int) -> Tensor:
        ctx.sizes, ctx.rank = sizes, rank
        padded = own.new_zeros(max(sizes), *own.shape[1:])
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return torch.split(gradients[0], ctx.sizes)[ctx.rank], None, None


class _Sum(torch.autograd.Function):
    """The sum over all ranks, which all ranks use: so is its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


class _Synchronised:
    """Batch norm with the statistics of all ranks' examples, in two passes as a single process would compute them."""

    def __init__(self, layer: _BatchNorm) -> None:
        self._layer = layer
        self._plain = layer.forward

    def __call__(self, x: Tensor) -> Tensor:
        layer = self._layer
        if not layer.training:
            return self._plain(x)
        others = [d for d in range(x.dim()) if d != 1]
        shape = [-1 if d == 1 else 1 for d in range(x.dim())]
        wide = x.float()
        own = torch.tensor([x.numel() / x.shape[1]], device=x.device)
        sums = cast(Tensor, _Sum.apply(torch.cat([wide.sum(others), own])))
        count, mean = sums[-1].detach(), sums[:-1] / sums[-1].detach()
        centred = wide - mean.view(shape)
        variance = cast(Tensor, _Sum.apply((centred**2).sum(others))) / count
        self._remember(mean.detach(), variance.detach(), count)
        y = centred * torch.rsqrt(variance + layer.eps).view(shape)
        if layer.affine:
            y = y * layer.weight.view(shape) + layer.bias.view(shape)
        y = y.to(x.dtype)
        for name in ("drop", "act"):  # timm has layers that norm and activate in one
            follow = getattr(layer, name, None)
            y = follow(y) if isinstance(follow, nn.Module) else y
        return y

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        layer = self._layer
        if not layer.track_running_stats or layer.running_mean is None or layer.running_var is None:
            return
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked.add_(1)
        tracked = 1 if layer.num_batches_tracked is None else int(layer.num_batches_tracked)
        weight = 1 / tracked if layer.momentum is None else layer.momentum
        layer.running_mean.lerp_(mean, weight)
        layer.running_var.lerp_(variance * (count / (count - 1)), weight)
