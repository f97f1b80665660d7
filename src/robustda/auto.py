"""``fit --method auto``: the fast method first, RDA too if there is time, and the one that should be right more often.

Each candidate is a run folder of its own under ``candidates/``. They are compared by the accuracy to be expected on the
target (`robustda.expect`: how often a model agrees with classifiers that were built in other ways): no label of it is
needed. RDA has to be better by a clear margin: where it is close, clarity is right more often. The winner's files are
copied into the run folder itself, so that predict, report and export find them there; ``auto.json`` says who was tried,
what is expected of each, and why the winner won. The same command goes on with what was stopped, by the plan that it
made at first.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from robustda.columns import Table
from robustda.data.domain import Domain
from robustda.data.pairs import check_pair
from robustda.decisions import apply_decisions
from robustda.errors import ConfigError, RunError
from robustda.expect import Expected, expected_accuracy, opinions
from robustda.files import disk_trouble, write_whole
from robustda.methods import Method, create_method
from robustda.overlap import PlainWords, plain_words
from robustda.predict import load
from robustda.ranks import Ranks
from robustda.reading import read_object
from robustda.report.describe import described

__all__ = ["Candidate", "check_alone", "fit_auto"]

_PROBE_STEPS = 20
_STAGE_1 = 0.6  # a step of stage 1, without a target and an adversary, costs so much of one of stage 2
_FEWEST_STEPS, _FEWEST_EPOCHS = 300, 8  # RDA with less than this is not worth its time
_PLAN, _NOTE = "auto-plan.json", "auto.json"
_PASSING = ("lock", "checkpoint", ".")
_LAST = ("model.json", "done")  # what makes a folder look like a finished run
_PROBE = {"progress": False, "profile": False, "track": "none", "stages": None, "select": "last", "eval_every": 0}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Candidate:
    """A method that was tried: what is expected of it on the target, and what it took."""

    method: str
    expected: Expected
    seconds: float
    steps: int


def fit_auto(
    source: Domain,
    target: Domain,
    *,
    out: str | os.PathLike[str],
    minutes: float = 0.0,
    settings: dict[str, Any] | None = None,
    decisions: str | os.PathLike[str] | None = None,
    say: Say = print,
    **runtime: Any,
) -> tuple[Method, list[Candidate]]:
    """Fit what the time allows and take the most promising. `settings` go to every method: backbone, weights, seed, ...

    `decisions` and `runtime` are as for `Method.fit`. Returns the winner, as its run folder has it, and all candidates,
    best first.
    """
    if not math.isfinite(minutes) or minutes < 0:
        raise ConfigError(f"minutes is {minutes}: give a number of at least 0")
    check_alone()
    began, folder, settings = time.monotonic(), Path(out), dict(settings or {})
    if (folder / "config.json").exists() and not (folder / "candidates").is_dir():
        kind = "a study" if (folder / "study.db").exists() else "a run of one method"
        raise RunError(f"{folder} holds {kind}: choose another --out, or delete the folder to start anew")
    as_given = source  # a fit applies the decisions itself, keeps a copy of them, and trusts what was decided
    source, target = check_pair(source if decisions is None else apply_decisions(source, decisions), target)
    learn = {"source": source if decisions is None else as_given, "target": target, "decisions": decisions, **runtime}
    fast = create_method("clarity", **settings)
    fast.fit(out=folder / "candidates" / "clarity", **learn)
    tried = [fast]
    plan = _plan(folder, source, target, settings, 60 * minutes - (time.monotonic() - began), runtime, say)
    if plan:
        slow = create_method("rda", **settings, **plan)
        tried.append(slow.fit(out=folder / "candidates" / "rda", **learn))
    views, plain = _views(fast, source, target, runtime, settings)
    candidates = _ranked([_judged(method, target, views, plain) for method in tried])
    best = candidates[0]
    note = {"chosen": best.method, "why": _why(candidates), "candidates": [_line(one) for one in candidates]}
    with disk_trouble(folder):
        _take(folder, best, note)
    say(_why(candidates))
    own = settings.get("backbone")
    backbone = own if isinstance(own, nn.Module) else None
    return load(folder, device=runtime.get("device", "auto"), backbone=backbone), candidates


def check_alone() -> None:
    """Refuse several processes."""
    if Ranks.of_environment().size > 1:
        raise ConfigError("auto runs in one process: start it without torchrun, or choose a method")


def _plan(
    folder: Path,
    source: Domain,
    target: Domain,
    settings: dict[str, Any],
    seconds: float,
    runtime: dict[str, Any],
    say: Say,
) -> dict[str, int]:
    """Steps and epochs for RDA that fit into the time, none where too few would; the same on every start."""
    file = folder / _PLAN
    if file.exists():
        try:
            found = read_object(file)
            return {name: int(found[name]) for name in ("steps", "epochs")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{file} is not the plan that was written: delete it, and another one is made") from error
    if seconds <= 0:
        return {}
    probe = create_method("rda", **settings, steps=_PROBE_STEPS, del_ocl=True)
    began = time.monotonic()
    probe.fit(source, target, **{**runtime, **_PROBE})
    step = (time.monotonic() - began) / _PROBE_STEPS
    whole = create_method("rda", **settings)
    epochs: int = whole.epochs  # type: ignore[attr-defined]
    needed = step * (whole.steps + _STAGE_1 * epochs * len(source) / whole.batch_size)
    share = min(1.0, (seconds - (time.monotonic() - began)) / needed)
    plan = {"steps": int(share * whole.steps), "epochs": int(share * epochs)}
    if plan["steps"] < _FEWEST_STEPS or plan["epochs"] < _FEWEST_EPOCHS:
        say(f"RDA would take about {needed / 60:.0f} minutes and was left out: give more --minutes to try it")
        return {}
    with disk_trouble(folder):
        write_whole(file, json.dumps(plan).encode())
    return plan


def _views(
    fast: Method, source: Domain, target: Domain, runtime: dict[str, Any], settings: dict[str, Any]
) -> tuple[list[np.ndarray], PlainWords | None]:
    """What classifiers of other kinds say of the target, from labels that are believed, and plain witnesses."""
    looking = {name: settings.get(name, "auto") for name in ("backbone", "weights")}
    looking |= {"cache_dir": runtime.get("cache_dir"), "strict": runtime.get("strict", False), "progress": False}
    looking |= {"image_size": fast.image_size_, "device": runtime.get("device", "auto")}
    table = fast.network_.backbone if isinstance(fast.network_.backbone, Table) else None
    source, here, _ = described(source, None, looking, table)
    _, there, _ = described(target, None, looking, table)
    trusted = fast.trust_ > 0 if hasattr(fast, "trust_") and len(fast.trust_) == len(source) else None
    assert source.y is not None
    views = opinions(here, source.y, there, len(source.classes), trusted=trusted, seed=fast.seed)
    sound = np.ones(len(source), dtype=bool) if source.corrupted is None else ~source.corrupted
    x, labels = np.asarray(here)[sound], source.y[sound]
    return list(views.values()), plain_words(x, labels, there, len(source.classes), seed=fast.seed)


def _judged(method: Method, target: Domain, views: list[np.ndarray], plain: PlainWords | None) -> Candidate:
    expected = expected_accuracy(method.predict_proba(target), views, plain=plain)
    return Candidate(method.name, expected, float(method.summary_["seconds"]), int(method.summary_["steps"]))


def _ranked(candidates: list[Candidate]) -> list[Candidate]:
    """The best first; the first that was tried, which is right more often, unless another one is clearly better."""
    first, others = candidates[0], sorted(candidates[1:], key=lambda candidate: -candidate.expected.value)
    better = others and others[0].expected.value > first.expected.value and not _close(others[0], first)
    return [others[0], first, *others[1:]] if better else [first, *others]


def _close(one: Candidate, other: Candidate) -> bool:
    """Whether it cannot be told which of them is better: they differ by less than a quarter of the wider interval."""
    width = max(each.expected.high - each.expected.low for each in (one, other))
    return abs(one.expected.value - other.expected.value) < width / 4


def _take(folder: Path, best: Candidate, note: dict[str, Any]) -> None:
    """Have the winner's files in the run folder itself, in an order in which it never looks finished before it is."""
    won = folder / "candidates" / best.method
    files = {path.name for path in won.iterdir() if path.is_file() and not path.name.startswith(_PASSING)}
    others = {path.name for path in folder.glob("candidates/*/*") if path.is_file()}
    for name in [*_LAST[::-1], *(others - files)]:  # of an earlier winner
        if not name.startswith(_PASSING):
            (folder / name).unlink(missing_ok=True)
    for name in sorted(files - set(_LAST)):
        write_whole(folder / name, (won / name).read_bytes())
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    if (won / "tensorboard").is_dir():
        shutil.copytree(won / "tensorboard", folder / "tensorboard")
    write_whole(folder / _NOTE, (json.dumps(note, indent=1) + "\n").encode())
    for name in _LAST:
        write_whole(folder / name, (won / name).read_bytes())


def _why(candidates: list[Candidate]) -> str:
    best, *others = candidates
    value, low, high = best.expected
    text = f"{best.method}: about {value:.0%} of the target should be right ({low:.0%} to {high:.0%})"
    if others:
        text += ", against " + ", ".join(f"{one.expected.value:.0%} with {one.method}" for one in others)
        if _close(best, others[0]):
            text += "; that is too close to be sure"
            text += f", and {best.method} is right more often then" if value < others[0].expected.value else ""
    return text


def _line(candidate: Candidate) -> dict[str, Any]:
    return asdict(candidate) | {"expected": candidate.expected._asdict()}
