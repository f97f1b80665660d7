"""What a run is taken up from: the state of a phase as tensors, and what tells whether the data are the same still."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from torch import Tensor

from robustda.data.cache import content_digest
from robustda.data.domain import Domain
from robustda.engine import Stepper
from robustda.methods.base import Phase

__all__ = ["SELECTED", "fingerprint", "gather", "restore", "under"]

SELECTED = "selected/"
"""where the network that was liked best lies in the task's memory"""

_IDS = 1 << 18  # that are put together at a time


def gather(phase: Phase, stepper: Stepper) -> dict[str, Tensor]:
    """All tensors that a phase in progress consists of."""
    tensors = {f"network/{name}": tensor for name, tensor in phase.network.state_dict().items()}
    for number, state in stepper.optimizer.state_dict()["state"].items():
        if state.get("momentum_buffer") is not None:
            tensors[f"momentum/{number}"] = state["momentum_buffer"]
    tensors |= {f"report/{name}": tensor for name, tensor in stepper.state().items()}
    for name, part in phase.stateful.items():
        tensors |= {f"stateful/{name}/{key}": tensor for key, tensor in part.state().items()}
    return tensors


def restore(tensors: dict[str, Tensor], phase: Phase, stepper: Stepper) -> None:
    """The inverse of `gather`."""
    phase.network.load_state_dict(under("network/", tensors))
    parameters = [p for group in stepper.optimizer.param_groups for p in group["params"]]
    for number, tensor in under("momentum/", tensors).items():
        parameter = parameters[int(number)]
        stepper.optimizer.state[parameter]["momentum_buffer"] = tensor.to(parameter.device)
    stepper.load(under("report/", tensors))
    for name, part in phase.stateful.items():
        part.load(under(f"stateful/{name}/", tensors))


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def fingerprint(*domains: Domain) -> dict[str, Any]:
    """Of all the data, to notice on a restart that they have changed: ids, labels, and every input."""
    digest = hashlib.blake2b(digest_size=16)
    for domain in domains:
        for start in range(0, len(domain), _IDS):  # as Python's strings, ten million ids would take a gigabyte
            text = "\0".join(domain.ids[start : start + _IDS].tolist())
            digest.update((text if start == 0 else f"\0{text}").encode())
        digest.update(b"" if domain.y is None else domain.y.tobytes())
        digest.update(b"" if domain.corrupted is None else domain.corrupted.tobytes())
        digest.update(content_digest(np.asanyarray(domain.x)))
    named = dict(zip(("source", "target"), domains, strict=False))
    return {
        **{role: domain.name for role, domain in named.items()},
        **{f"{role}_examples": len(domain) for role, domain in named.items()},
        "shape": list(domains[0].shape),
        "classes": domains[0].classes.tolist(),
        "digest": digest.hexdigest(),
    }
