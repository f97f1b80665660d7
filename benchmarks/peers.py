"""What cpu_peers.py times: training steps and judgements on labels, ours and the peers', and the data for them.

Every function does one turn of its work and returns the seconds of each thing done, and a digest of the answer where
there is one. Peers are imported where they are used: any of them may be missing.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

N_FEATURES, N_CLASSES, BATCH = 2048, 31, 32
Turn = tuple[list[float], str]


def robustda_steps(name: str, width: int, steps: int, precision: str) -> Turn:
    from robustda import Domain
    from robustda.methods import create_method

    source, labels, target = vectors(BATCH * steps)
    method = create_method(name, width=width, steps=steps, batch_size=BATCH)
    ticks: list[float] = []

    def clocked(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(build)
        def build_with_clock(task: Any) -> Any:
            phase = build(task)

            def loss(batch: Any, progress: Tensor) -> dict[str, Tensor]:
                ticks.append(time.perf_counter())
                return phase.loss(batch, progress)

            return dataclasses.replace(phase, loss=loss)

        return build_with_clock

    builders = method.phases()
    method.phases = lambda: [clocked(build) for build in builders]
    domains = Domain.from_arrays(source, labels), Domain.from_arrays(target)
    method.fit(*domains, device="cpu", precision=precision, threads=torch.get_num_threads(), progress=False)
    return np.diff(ticks).tolist(), ""


def skada_steps(name: str, width: int, steps: int) -> Turn:
    from skada.deep import DANN, MDD
    from skada.deep.modules import GradientReversalLayer
    from skorch.callbacks import Callback

    class Behind(nn.Module):
        """A network behind skada's gradient reversal."""

        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Tensor) -> Tensor:
            return self.network(GradientReversalLayer.apply(x, 1)).squeeze()

    class Clock(Callback):
        def on_batch_end(self, net: Any, **_: Any) -> None:
            ticks.append(time.perf_counter())

    ticks: list[float] = []
    source, labels, target = vectors(BATCH * steps)
    parts = plain_parts(name, width)
    network = nn.Sequential()
    network.add_module("bottleneck", parts["bottleneck"])
    network.add_module("f", parts["f"])
    rate, rest = sgd(name)
    training: dict[str, Any] = {"optimizer": torch.optim.SGD, "lr": rate, "batch_size": BATCH, "max_epochs": 1}
    training |= {f"optimizer__{option}": value for option, value in rest.items()}
    training |= {"train_split": None, "verbose": 0, "callbacks": [Clock()]}
    if name == "dann":
        judge, criterion = Behind(parts["discriminator"]), nn.BCEWithLogitsLoss()
        net = DANN(network, "bottleneck", domain_classifier=judge, domain_criterion=criterion, **training)
    else:
        net = MDD(network, "bottleneck", disc_classifier=Behind(parts["adversary"]), gamma=4.0, **training)
    domains = np.repeat([1, -2], len(source))  # skada's convention: sources above zero, targets below
    net.fit(np.concatenate([source, target]), np.concatenate([labels, np.full(len(target), -1)]), domains)
    return np.diff(ticks).tolist(), ""


def pytorch_adapt_steps(name: str, width: int, steps: int) -> Turn:
    from pytorch_adapt.datasets import CombinedSourceAndTargetDataset, DataloaderCreator, SourceDataset, TargetDataset
    from pytorch_adapt.hooks import DANNHook
    from torch.utils.data import TensorDataset

    source, labels, target = (torch.from_numpy(array) for array in vectors(BATCH * steps))
    parts = plain_parts(name, width)
    models = {"G": parts["bottleneck"], "C": parts["f"], "D": nn.Sequential(parts["discriminator"], nn.Flatten(0))}
    rate, rest = sgd(name)
    hook = DANNHook([torch.optim.SGD(model.parameters(), lr=rate, **rest) for model in models.values()])
    pairs = CombinedSourceAndTargetDataset(
        SourceDataset(TensorDataset(source, labels)), TargetDataset(TensorDataset(target, labels))
    )
    ticks: list[float] = []
    for batch in DataloaderCreator(batch_size=BATCH)(train=pairs)["train"]:
        hook({**models, **batch})
        ticks.append(time.perf_counter())
    return np.diff(ticks).tolist(), ""


def matrix_products(name: str, width: int, steps: int, precision: str = "") -> Turn:
    """Those of one step: as robustda makes them in that precision, or else as PyTorch does, in float32."""
    from robustda.engine import Runtime, place
    from robustda.layers import times
    from robustda.methods import create_method

    network = create_method(name, width=width).network((N_FEATURES,), N_CLASSES)
    place(network, torch.device("cpu"), Runtime(device="cpu", precision=precision or "float32"))
    layers = []
    for number, (part, layer) in enumerate(pair for pair in network.named_modules() if isinstance(pair[1], nn.Linear)):
        dtype = torch.bfloat16 if getattr(layer, "low_precision", False) else torch.float32
        shapes = (2 * BATCH, layer.in_features), layer.weight.shape, (2 * BATCH, layer.out_features)
        x, weight, outcome = (torch.randn(shape, dtype=dtype) for shape in shapes)
        learning = BATCH if part.startswith("f.") else 2 * BATCH  # f learns from the source alone
        own = times if precision and getattr(layer, "is_wide", False) else torch.mm
        layers.append((own, x, weight, outcome[:learning], x[:learning], number > 0))
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        for product, x, weight, outcome, learning, behind_others in layers:
            product(x, weight.t())
            product(outcome.t(), learning)
            if behind_others:  # nobody needs the gradient of the vectors themselves
                product(outcome, weight)
        seconds.append(time.perf_counter() - start)
    return seconds, ""


def judge_labels(who: str, kind: str, size: int, n_classes: int) -> Turn:
    labels, probabilities = noisy_predictions(size, n_classes)
    find = {
        "robustda": {"joint": our_joint, "issues": our_issues},
        "cleanlab": {"joint": their_joint, "issues": their_issues},
    }
    start = time.perf_counter()
    found = find[who][kind](labels, probabilities)
    seconds = time.perf_counter() - start
    return [seconds], hashlib.blake2b(np.ascontiguousarray(found, dtype=np.int64)).hexdigest()


def our_joint(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    from robustda.noise.confident import confident_joint

    return confident_joint(labels, probabilities)


def our_issues(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    from robustda.noise.confident import confident_classes

    confident = confident_classes(labels, probabilities)
    suspects = np.flatnonzero((confident >= 0) & (confident != labels))
    issues = np.zeros(len(labels), dtype=bool)
    issues[suspects] = probabilities[suspects].argmax(axis=1) != labels[suspects]
    return issues


def their_joint(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    from cleanlab.count import compute_confident_joint

    return compute_confident_joint(labels, probabilities, calibrate=False)


def their_issues(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    from cleanlab.filter import find_label_issues

    return find_label_issues(labels, probabilities, filter_by="confident_learning")


def plain_parts(name: str, width: int) -> dict[str, nn.Module]:
    """The layers of our network for vectors, made of PyTorch's own modules."""
    from robustda.methods import create_method

    network = create_method(name, width=width).network((N_FEATURES,), N_CLASSES)
    return {part: plain(module) for part, module in network.named_children() if part != "backbone"}


def plain(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.Sequential):
        return nn.Sequential(*(plain(layer) for layer in module))
    if isinstance(module, nn.Linear):
        return nn.Linear(module.in_features, module.out_features)
    if type(module).__name__ == "Dropout":
        return nn.Dropout(module.p)
    return module


def sgd(name: str) -> tuple[float, dict[str, Any]]:
    """Our learning rate, and the other settings of PyTorch's SGD."""
    from robustda.methods import create_method

    method = create_method(name)
    rest = {"momentum": method.momentum, "nesterov": True, "weight_decay": method.weight_decay}
    return method.learning_rate, rest


@functools.cache
def vectors(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(size) % N_CLASSES)
    centres = rng.normal(size=(N_CLASSES, N_FEATURES))
    source, target = (centres[labels] + rng.normal(shift, 2, (size, N_FEATURES)) for shift in (0, 0.5))
    return source.astype(np.float32), labels, target.astype(np.float32)


@functools.cache
def noisy_predictions(size: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels, a fifth of them drawn anew, and the probabilities of a classifier that is often right."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, n_classes, size)
    scores = rng.normal(size=(size, n_classes))
    scores[np.arange(size), true] += 4
    probabilities = np.exp(scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return np.where(rng.random(size) < 0.2, rng.integers(0, n_classes, size), true), probabilities
