"""Fitting a method: data in, run folder out, and one line for what a machine runs out of. The loop is in loop.py."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from robustda.columns import Table, look_at_columns, main_columns
from robustda.data.domain import Domain
from robustda.data.pairs import check_pair
from robustda.data.views import at_size, natural_size
from robustda.decisions import read_decisions
from robustda.engine import Runtime
from robustda.errors import DataError, RobustDAError, RobustDAWarning, RunError
from robustda.files import write_whole
from robustda.loop import Run
from robustda.methods.base import Method
from robustda.methods.checks import check_known
from robustda.nets import soon_needed, usual_backbone
from robustda.outcome import take_over
from robustda.predict import load
from robustda.profile import Profile
from robustda.ranks import Ranks
from robustda.resume import fingerprint
from robustda.run import RunFolder

__all__ = ["fit"]

_NO_MEMORY = re.compile("not enough memory|can't allocate memory|cannot allocate memory", re.IGNORECASE)


def fit(
    method: Method,
    source: Domain | str | os.PathLike[str],
    target: Domain | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    cache_dir: str | None = None,
    strict: bool = False,
    decisions: str | os.PathLike[str] | None = None,
    **options: Any,
) -> None:
    """Fit `method` in place; see `Method.fit`. `strict` makes unreadable images an error, `options` are `Runtime`'s.

    `decisions` is a file that the audit page exported: it is applied to the source first.
    """
    source, target = _domain(source, "source", method), _domain(target, "target", method)
    check_known("fit", options, Runtime)
    runtime = Runtime(**options)
    ranks = Ranks.of_environment()
    ranks.check(method.batch_size)
    with ranks.joined(runtime.torch_device()), runtime.limits():
        _fit(method, source, target, out, {"cache_dir": cache_dir, "strict": strict}, decisions, runtime, ranks)


def _domain(given: object, role: str, method: Method) -> Domain:
    """What was given as a domain, read if it is a path."""
    if isinstance(given, Domain):
        return given
    if isinstance(given, str | os.PathLike):
        return Domain.read(os.fspath(given), labels="required" if role == "source" else "auto")
    raise DataError(
        f"the {role} is of type {type(given).__name__}: give a Domain (Domain.from_arrays(x, y) makes one of arrays) "
        f"or a path to read; to fit arrays as scikit-learn does, there is {type(method).__name__}Classifier().fit(X, "
        "y, X_target=...)"
    )


def _fit(
    method: Method,
    source: Domain,
    target: Domain,
    out: str | os.PathLike[str] | None,
    decoding: dict[str, Any],
    decisions: str | os.PathLike[str] | None,
    runtime: Runtime,
    ranks: Ranks,
) -> None:
    decided = None if decisions is None else read_decisions(decisions)
    source = source if decided is None else decided.apply(source)
    profile = Profile(runtime.torch_device(), on=runtime.profile)
    source, target = check_pair(source, target)
    if source.kind == "images":
        size = method.image_size or natural_size(source)
        if isinstance(method.backbone, str):
            soon_needed(usual_backbone((size, size, 3)) if method.backbone == "auto" else method.backbone)
        decoding["progress"] = runtime.progress and ranks.first
        with profile.section("decode"), warnings.catch_warnings():
            if not ranks.first:
                warnings.simplefilter("ignore", RobustDAWarning)  # rank 0 has said it
            source, target = ranks.one_after_the_other(
                lambda: (at_size(source, size, **decoding), at_size(target, size, **decoding))
            )
        source, target = check_pair(source, target)  # a class may have lost all its images
        method.image_size_ = size
    else:
        method.image_size_ = 0
    method.columns_ = _columns(method, source, target, ranks)
    method.classes_, method.features_ = source.classes, source.features
    config = {"method": method.name, "params": method.record(), "data": fingerprint(source, target)}
    if runtime.select != "last":
        config["select"] = runtime.select
    opened: list[RunFolder] = []

    def open_folder() -> bool:
        if out is not None:
            opened.append(RunFolder(out, config))
        return bool(opened and opened[0].done)

    try:
        if ranks.first_says(open_folder):
            own = method.backbone if isinstance(method.backbone, torch.nn.Module) else None
            take_over(method, load(str(out), device=runtime.device, backbone=own))
            return
        folder = opened[0] if opened else None
        run = Run(method, source, target, runtime, folder, profile, ranks)
        if decided is not None:
            confirmed = np.isin(source.ids, list(decided.confirmed))
            run.task.confirmed = torch.as_tensor(confirmed, device=run.device)
        with run.stop.listening(), _trouble(method, folder, ranks):
            if folder is not None and decided is not None:
                write_whole(folder.path / "decisions.csv", decided.content)
            run.go()
            profile.write(folder)
        method.profile_ = profile.table() if runtime.profile else []
        if run.stop:  # asked to while the outcome was being written: whoever called is not to go on with other work
            run.stop.obey()
    finally:
        for folder in opened:
            folder.close()


def _columns(method: Method, source: Domain, target: Domain, ranks: Ranks) -> dict[str, torch.Tensor]:
    """What the backbone has to know of the columns of a table before it is made."""
    if source.kind == "images":
        return {}
    if not isinstance(method.make_backbone(source.shape, pretrained=False), Table):
        few, share = main_columns(np.asarray(source.x)) if method.backbone == "auto" and ranks.first else (0, 0.0)
        if few:
            message = (
                f"{few} of the {source.shape[0]} columns have {share:.0%} of all variance, so that hardly anything "
                "else is seen: if these are columns of a table, each with a unit of its own, give backbone=table"
            )
            warnings.warn(message, RobustDAWarning, stacklevel=2)
        return {}
    return look_at_columns(np.asarray(source.x), np.asarray(target.x), method.seed)


@contextlib.contextmanager
def _trouble(method: Method, folder: RunFolder | None, ranks: Ranks) -> Iterator[None]:
    """One line for what a machine runs out of: room on the disk, memory. What all ranks find, rank 0 says."""
    try:
        with folder.disk_trouble() if folder else contextlib.nullcontext():
            yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        where = "; the same command then goes on where it stood" if folder and folder.newest_checkpoint() else ""
        raise RunError(
            f"the memory is full: end what else needs it, or choose a smaller batch_size (now {method.batch_size}) or "
            f"backbone{where}"
        ) from error
    except RobustDAError:
        if ranks.first:
            raise
        raise SystemExit(2) from None
