"""A cell of a table: one method on one task under one noise, and the run folder that it becomes."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from robustda._version import __version__
from robustda.bench.data import noisy_domain, target_domain
from robustda.errors import RobustDAError, RunInUse

if TYPE_CHECKING:
    from robustda.data.domain import Domain
    from robustda.methods import Method

__all__ = ["TARGET_FEATURES", "BatchNorm", "Cell", "Noise", "Protocol", "run_cell"]

Noise = Literal["none", "label", "feature", "mixed"]
Protocol = Literal["features", "mirrored", "peaks", "finetune"]
"""Frozen features as the data folder has them; the mean of those of images and their mirror images, images that look
corrupted marked; the same pooled by their peaks, as `robustda features` makes them; or the backbone trained on the
images."""
BatchNorm = Literal["learn", "keep"]


@dataclass(frozen=True)
class Cell:
    """What is run. Two cells that run the same thing have the same `key`, whatever table they stand in."""

    method: str
    source: str
    target: str
    noise: Noise
    rate: float
    seed: int
    steps: int
    protocol: Protocol
    draw: str = "authors"
    """whose noise: the authors' own draw, or the seed of a simulated one"""
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    """of the method, where they are not its defaults"""

    @property
    def key(self) -> str:
        """The name of its run folder: a digest of all the above."""
        return hashlib.blake2b(json.dumps(asdict(self), sort_keys=True).encode(), digest_size=10).hexdigest()

    @property
    def task(self) -> str:
        return f"{self.source}→{self.target}"


TARGET_FEATURES = "target_features.npz"
"""where a cell keeps what its network made of the target, if asked to: x, and y for the true classes"""


def run_cell(
    cell: Cell,
    out: Path,
    root: Path,
    *,
    device: str = "auto",
    threads: int = 0,
    keep_features: bool = False,
    compile: bool = False,
) -> None:
    """Fit the cell in ``out/cells/<key>``, or take up where it stopped; a mistake is noted there and not raised.

    Where another process is at work on the cell, wait for what comes of it.
    """
    folder = out / "cells" / cell.key
    folder.mkdir(parents=True, exist_ok=True)
    while not (folder / "cell.json").exists():
        try:
            how = {"device": device, "threads": threads, "compile": compile}
            return _run_cell(cell, folder, out, root, how, keep_features)
        except RunInUse:
            from robustda.files import wait_until_free

            wait_until_free(folder)


def _run_cell(cell: Cell, folder: Path, out: Path, root: Path, how: dict[str, Any], keep_features: bool) -> None:
    from robustda.methods import create_method

    error = folder / "error.txt"
    error.unlink(missing_ok=True)
    settings = dict(cell.settings)
    if cell.protocol == "finetune":
        settings |= {"backbone": "resnet50_v1", "weights": str(root / "weights" / "resnet50_v1_imagenet.safetensors")}
    try:
        source = noisy_domain(root, cell.protocol, cell.source, cell.noise, cell.rate, cell.draw, out)
        target = target_domain(root, cell.protocol, cell.target, out)
        method = create_method(cell.method, seed=cell.seed, steps=cell.steps, **settings)
        how |= {"stages": out / "stages", "criteria": "all", "tensorboard": False, "progress": False}
        method.fit(source, target, out=folder, **how)
        if keep_features:
            features, labels = _features(method, target)
            np.savez_compressed(folder / TARGET_FEATURES, x=features.astype(np.float16), y=labels)
    except RunInUse:
        raise
    except Exception as failure:  # whatever it was, the other cells can do without this one
        if not (folder / "cell.json").exists():  # a process that was thought dead may have been faster after all
            what = f"{type(failure).__name__}: {failure}\n{traceback.format_exc()}"
            error.write_text(f"{failure}\n" if isinstance(failure, RobustDAError) else what)
        return
    note = asdict(cell) | {"hardware": _hardware(how["device"]), "version": __version__}
    temporary = folder / ".cell.json"
    temporary.write_text(json.dumps(note, indent=1, ensure_ascii=False) + "\n")
    os.replace(temporary, folder / "cell.json")
    # A table needs only the numbers. Not before the cell counts as done: a run without its model cannot be taken up.
    (folder / "model.safetensors").unlink(missing_ok=True)


def _features(method: Method, domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """What the network's classifier sees of a domain, and the true classes."""
    from robustda.data.batches import Inputs
    from robustda.data.views import at_size, view
    from robustda.methods.task import forward_all

    network = method.network_.eval()
    if domain.kind == "images":
        domain = at_size(domain, method.image_size_)
    device = next(network.parameters()).device
    inputs = Inputs(domain, device, crop=view(method.image_size_)[1])
    assert domain.y is not None
    return forward_all(network.features, inputs).cpu().numpy(), domain.y


def _hardware(device: str) -> str:
    import torch

    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {torch.get_num_threads()} threads"
