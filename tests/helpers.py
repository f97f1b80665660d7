"""A small task as a phase is given it, and a batch of it, for tests that look at one loss."""

from __future__ import annotations

import numpy as np
import torch

from robustda.data.batches import Inputs
from robustda.data.domain import Domain
from robustda.methods.base import Batch, Task

CPU = torch.device("cpu")


def task(n: int = 12, classes: int = 3, width: int = 5, seed: int = 0) -> Task:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, n, width)).astype(np.float32)
    labels = np.arange(n) % classes
    source, target = Domain.from_arrays(x[0], labels), Domain.from_arrays(x[1] + 1)
    return Task(Inputs(source, CPU), torch.as_tensor(labels), Inputs(target, CPU), classes, CPU)


def batch_of(given: Task, dtype: torch.dtype = torch.float32) -> Batch:
    rows = torch.arange(len(given.source))
    return Batch(given.source.train(rows).to(dtype), given.labels, rows, given.target.train(rows).to(dtype))
