"""A run, and several runs, in sentences that need no explanation; the most important one first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robustda.doubts import in_words
from robustda.expect import Expected
from robustda.report.run_findings import Accuracy, accuracy_of, collapsed, expected_of, game_of, trust_of
from robustda.report.run_read import RunRecord
from robustda.report.wording import joined, percent

__all__ = ["compared", "interval", "judged", "told"]

_STRIKING = 0.5  # a class of which less is recognised is named
_FEW = 5


def told(run: RunRecord) -> list[str]:
    """What to tell a person who reads no further."""
    doubts = [f"{said[0].upper()}{said[1:]}." for said in in_words(run.summary.get("doubts", {}))]
    return [*_state(run), *_about_accuracy(run), *_about_trust(run), *doubts, *_about_health(run)]


def compared(runs: Sequence[RunRecord]) -> list[str]:
    """The same about several runs."""
    said = []
    scored = [(float(run.summary["target_accuracy"]), run) for run in runs if _accuracy(run) is not None]
    targets = {(run.target_name, run.data["target_examples"]) for run in runs}
    same_data = len({run.data.get("digest") for run in runs}) == 1
    if len(targets) > 1:
        said.append(f"These {len(runs)} runs are on different targets: their accuracies cannot be compared.")
    elif len(scored) > 1:
        scored.sort(key=lambda pair: -pair[0])
        (first, best), (second, next_best) = scored[:2]
        ahead = f"{100 * (first - second):.1f} points ahead of {next_best.name} ({_exact(second)})"
        if first == second:
            ahead = f"level with {next_best.name}"
        said.append(f"{best.name} is best on {best.target_name}: {_exact(first)} right, {ahead}.")
        wide = (first - second) * np.sqrt(best.data["target_examples"]) < 2 * np.sqrt(first * (1 - first))
        if wide and first > second:
            said.append(
                "With so few examples in the target that lead may be chance: repeat both with other seeds before you "
                "rely on it."
            )
    elif scored:
        said.append(f"Of these {len(runs)} runs only {scored[0][1].name} has an accuracy: {_exact(scored[0][0])}.")
    else:
        said.append(f"{len(runs)} runs are compared; without labels in the target nobody knows which is best.")
        said += _most_expected(runs)
    if not same_data and len(targets) == 1:
        said.append("The runs did not learn from the same data: see what differs below.")
    unfinished = [run.name for run in runs if not run.done]
    if unfinished:
        said.append(f"Not ended yet: {joined(unfinished[:6])}.")
    said += [f"{run.name} calls nearly all of the target one class." for run in runs if collapsed(run)]
    return said


def interval(expected: Expected) -> str:
    """``78 % to 93 %``."""
    return f"{percent(expected.low)} to {percent(expected.high)}"


def judged(expected: Expected, final: float) -> str:
    """How an expected accuracy turned out, as the end of a sentence."""
    if expected.low <= final <= expected.high:
        return "the true share lies in that interval"
    return f"the true share lies {'below' if final < expected.low else 'above'} that interval"


def _most_expected(runs: Sequence[RunRecord]) -> list[str]:
    found = [(expected, run) for run in runs if (expected := expected_of(run)) is not None]
    if not found:
        return []
    found.sort(key=lambda pair: -pair[0].value)
    (most, first), rest = found[0], [expected.high for expected, _ in found[1:]]
    who = f"{first.name} alone says what it expects of itself" if len(found) == 1 else f"{first.name} expects most"
    close = "; that is too close to others to be sure" if rest and max(rest) > most.low else ""
    return [f"{who}: about {percent(most.value)} right ({interval(most)}){close}."]


def _accuracy(run: RunRecord) -> float | None:
    value = run.summary.get("target_accuracy")
    return None if value is None else float(value)


def _state(run: RunRecord) -> list[str]:
    if run.done:
        return []
    where = (
        f"it has come to step {run.phases[-1][1]:,} of phase {run.phases[-1][0]}"
        if run.phases
        else "it has logged nothing yet"
    )
    return [f"This run has not ended: {where}. The same fit command takes it up again."]


def _about_accuracy(run: RunRecord) -> list[str]:
    examples = f"{run.data['target_examples']:,} examples of {run.target_name}"
    if run.predictions is None:
        return []
    found, expected = accuracy_of(run), expected_of(run)
    if found is None and expected is not None:
        return [
            f"About {percent(expected.value)} of the {examples} should be right ({interval(expected)}), judged without "
            "labels."
        ]
    if found is None:
        return [f"The {examples} are classified, but they carry no labels: how many are right nobody knows."]
    said = [
        f"{_exact(found.final)} of the {int(found.counts.sum()):,} labelled examples of {run.target_name} are "
        "classified right."
    ]
    if expected is not None:
        said.append(
            f"Without these labels about {percent(expected.value)} were expected to be right ({interval(expected)}): "
            f"{judged(expected, found.final)}."
        )
    if found.best is not None and found.best[0] > found.final + 0.005 and "selected_step" not in run.summary:
        best, step = found.best
        said.append(
            f"At step {step:,} it was {_exact(best)}: an oracle's choice, since it takes the target's labels to make."
        )
    return [*said, *_worst(found, run.classes)]


def _worst(found: Accuracy, names: Sequence[str]) -> list[str]:
    totals, recall = found.counts.sum(axis=1), found.recall
    weak = [
        k
        for k in np.argsort(np.nan_to_num(recall, nan=2.0), kind="stable")
        if totals[k] >= _FEW and recall[k] < _STRIKING
    ]
    if not weak:
        return []
    parts = []
    for k in weak[:3]:
        taken = int(np.argmax(np.where(np.arange(len(names)) == k, -1, found.counts[k])))
        parts.append(f"{names[k]} ({percent(recall[k])} recognised, most often taken for {names[taken]})")
    more = f"; {len(weak) - 3} more classes are below one half" if len(weak) > 3 else ""
    return [f"Weakest: {joined(parts)}{more}."]


def _about_trust(run: RunRecord) -> list[str]:
    found, rate = trust_of(run), run.summary.get("noise_rate")
    if found is None:
        return []
    share, examples = percent(found.is_trusted.mean()), f"{len(found.is_trusted):,}"
    if rate is None:
        said = f"{share} of the {examples} source examples were trusted"
    elif run.params.get("noise_rate", "auto") == "auto":
        said = f"About {percent(rate)} of the {examples} source labels look wrong; {share} were trusted"
    else:
        said = f"{percent(rate)} of the {examples} source labels were said to be wrong; {share} were trusted"
    if mended := run.summary.get("mended_share"):
        said += f", {percent(mended)} taken for another class than the one given"
    few = [run.classes[k] for k in np.flatnonzero((found.trusted < _FEW) & (found.examples > 0))]
    if few:
        shown = few[:3] + ([f"{len(few) - 3} more"] if len(few) > 3 else [])
        return [
            f"{said}.",
            f"Fewer than {_FEW} examples were trusted of {joined(shown)}: little to learn these classes from.",
        ]
    return [f"{said}."]


def _about_health(run: RunRecord) -> list[str]:
    if collapsed(run):
        return ["Nearly all of the target is called one class: the run has collapsed, or the target is of one class."]
    game = game_of(run)
    return [game.verdict] if game is not None else []


def _exact(share: float) -> str:
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"
