"""What several tests are about: a small task as a phase is given it, a batch of it; features in clusters."""

from __future__ import annotations

import numpy as np
import torch

from robustda.data.batches import Inputs
from robustda.data.domain import Domain
from robustda.methods.base import Batch, Task

CPU = torch.device("cpu")
N_CLUSTERS = 12


def task(n: int = 12, classes: int = 3, width: int = 5, seed: int = 0) -> Task:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, n, width)).astype(np.float32)
    labels = np.arange(n) % classes
    source, target = Domain.from_arrays(x[0], labels), Domain.from_arrays(x[1] + 1)
    return Task(Inputs(source, CPU), torch.as_tensor(labels), Inputs(target, CPU), classes, CPU)


def batch_of(given: Task, dtype: torch.dtype = torch.float32) -> Batch:
    rows = torch.arange(len(given.source))
    return Batch(given.source.train(rows).to(dtype), given.labels, rows, given.target.train(rows).to(dtype))


def noisy_clusters(rate: float, seed: int = 0, size: int = 360) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of twelve classes that lie apart, the true classes, and labels of which so many are any other's."""
    rng = np.random.default_rng(seed)
    true = np.arange(size) % N_CLUSTERS
    x = 1.2 * rng.normal(size=(N_CLUSTERS, 20))[true] + rng.normal(size=(size, 20)) / 2
    given = np.where(rng.random(size) < rate, (true + rng.integers(1, N_CLUSTERS, size)) % N_CLUSTERS, true)
    return x.astype(np.float32), true, given
