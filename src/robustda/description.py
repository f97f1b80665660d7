"""What a frozen backbone makes of all images, made once: a later run on the same images finds it.

It is kept beside the decoded images that it was made of, as <cache>/images/<key>/features-<name>.npy, and the name is
made of all else that it depends on: structure and weights of the backbone, crop, mirror image, precision, device. A
module of the user's own is asked anew every time, since its weights do not tell what it does with them.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from robustda.data.batches import Inputs
from robustda.data.cache import entry_of
from robustda.data.readers import UNREADABLE
from robustda.data.views import two_views
from robustda.files import whole
from robustda.nets import Backbone
from robustda.progress import Bar

__all__ = ["batch_for_all", "describe_all"]

_CACHED = 32 * 64 * 64  # pixels of a batch on a CPU
_FORMAT = 1  # raise it when what a name stands for changes


@torch.no_grad()
def describe_all(
    backbone: Backbone,
    inputs: Inputs,
    *,
    low_precision: bool = False,
    mirrored: bool = False,
    batch_size: int = 0,
    progress: bool = False,
    keep: bool = True,
    heed: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """The backbone's float32 features of every input, in order, as it is in prediction.

    `low_precision` is its precision here, whatever it is otherwise; with `mirrored` an image's features are the mean of
    its own and its mirror image's. Without `keep` nothing is looked for in the cache or left there: for a backbone that
    has just been trained, which nobody will ask about these images again. `heed` is called after every batch.
    """
    before = backbone.low_precision, backbone.training
    backbone.low_precision = low_precision
    backbone.eval()
    try:
        file = _file(backbone, inputs, mirrored=mirrored) if keep else None
        known = None if file is None else _read(file, (len(inputs), backbone.out_features))
        if known is not None:
            return known

        def look(x: Tensor) -> Tensor:
            with torch.autocast(x.device.type, torch.bfloat16, enabled=low_precision):
                return cast(Tensor, backbone(x))

        view = (lambda x: two_views(look, x)) if mirrored else look
        made = _in_order(view, inputs, batch_size, progress, heed)
        if file is not None:
            _write(file, made)
        return made
    finally:
        backbone.low_precision = before[0]
        backbone.train(before[1])


def batch_for_all(inputs: Inputs) -> int:
    """How many inputs at a time are quickest to look at, and need not much memory.

    A CPU is quickest with as many images as its caches hold: 32 photographs at a time take a quarter less time than 256
    and a sixth of the memory, small images half the time.
    """
    if not inputs.images:
        return 2048
    if inputs.device.type == "cpu":
        return min(2048, max(32, _CACHED // inputs.crop**2))
    return 256 if inputs.crop > 64 else 2048


def _in_order(
    look: Callable[[Tensor], Tensor], inputs: Inputs, batch_size: int, progress: bool, heed: Callable[[], None]
) -> np.ndarray:
    rows: list[Tensor] = []
    done = 0
    with Bar("features", len(inputs), unit="images", show=progress and inputs.images) as bar:
        for batch in inputs.in_order(batch_size or batch_for_all(inputs)):
            rows.append(look(batch).float().cpu())
            done += len(batch)
            bar.update(done)
            heed()
    return torch.cat(rows).numpy()


def _file(backbone: Backbone, inputs: Inputs, *, mirrored: bool) -> Path | None:
    """Where such features are kept; None where they are not."""
    entry = entry_of(inputs.array) if inputs.images and backbone.pretrained and not backbone.own else None
    if entry is None:
        return None
    device = inputs.device.type
    versions = [getattr(sys.modules.get(name), "__version__", "") for name in ("torch", "timm", "transformers")]
    what = [_FORMAT, inputs.crop, mirrored, backbone.low_precision, device, *versions, backbone]
    digest = hashlib.blake2b("\0".join(map(str, what)).encode(), digest_size=16)
    for name, tensor in backbone.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().data)
    return entry / f"features-{digest.hexdigest()}.npy"


def _read(file: Path, shape: tuple[int, int]) -> np.ndarray | None:
    try:
        found = np.load(file, mmap_mode="r", allow_pickle=False)  # mapped, a header may lie about the size
    except UNREADABLE:
        return None
    if found.shape != shape or found.dtype != np.float32:
        return None
    features = np.array(found)
    return features if np.isfinite(features).all() else None


def _write(file: Path, features: np.ndarray) -> None:
    # No room, or not ours to write to: it is made again next time.
    with contextlib.suppress(OSError), whole(file) as temporary, open(temporary, "wb") as handle:
        np.save(handle, features, allow_pickle=False)
