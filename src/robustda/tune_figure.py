"""The trials of a study as a figure: the score over time, and against each option; PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustda.search_space import Choice, Range

if TYPE_CHECKING:
    from robustda.tune import Study

__all__ = ["draw_study"]

_POINT, _BEST, _LINE, _FAILED = "#0072B2", "#D55E00", "#555555", "#999999"
_MOST_OPTIONS = 8
_COLUMNS = 3


def draw_study(found: Study) -> list[Path]:
    """Write trials.png and trials.svg into the study's folder."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(found.space)[:_MOST_OPTIONS]
    columns = 2 if len(names) == 3 else min(_COLUMNS, 1 + len(names))
    rows = -(-(1 + len(names)) // columns)
    figure = Figure(figsize=(3.5 * columns, 2.9 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for empty in axes[1 + len(names) :]:
        empty.set_visible(False)
    ended = found.table[found.table["state"] == "ended"]
    score = ended["score"].to_numpy(float)
    _over_time(axes[0], found, ended["trial"].to_numpy(int), score)
    for name, own in zip(names, axes[1:], strict=False):
        part = found.space[name]
        if isinstance(part, Range):
            _scale(own, part)
            _points(own, ended[name].to_numpy(float), score, ended["trial"].to_numpy(int) == found.best)
        else:
            _by_value(own, part, ended[name].tolist(), score, ended["trial"].to_numpy(int) == found.best)
        own.set_xlabel(name)
    for number, own in enumerate(axes[: 1 + len(names)]):
        own.grid(axis="y", color="#dddddd", linewidth=0.7)
        if number % columns == 0:
            own.set_ylabel(f"{found.criterion} (higher is better)")
        for side in ("top", "right"):
            own.spines[side].set_visible(False)
    figure.suptitle(f"{found.folder.resolve().name}: scored without target labels", x=0.01, ha="left", fontsize=11)
    paths = [found.folder / f"trials{suffix}" for suffix in (".png", ".svg")]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths


def _over_time(axes: Any, found: Study, number: np.ndarray, score: np.ndarray) -> None:
    from matplotlib.ticker import MaxNLocator

    if len(score):
        axes.step(number, np.maximum.accumulate(score), where="post", color=_LINE, linewidth=1.2, label="best so far")
    _points(axes, number.astype(float), score, number == found.best)
    failed = found.table.loc[found.table["state"] == "failed", "trial"].to_numpy(int)
    if len(failed):
        floor = score.min() if len(score) else 0.0
        axes.plot(failed, np.full(len(failed), floor), "x", color=_FAILED, markersize=6, label="failed")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("trial")
    if len(score) or len(failed):
        axes.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncol=3, borderaxespad=0.2)


def _scale(axes: Any, part: Range) -> None:
    """The whole range, with ticks as one writes numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if not part.log:
        aside = 0.04 * (part.high - part.low)
        axes.set_xlim(part.low - aside, part.high + aside)
        return
    axes.set_xscale("log")
    decades = np.log10(part.high / part.low)
    axes.set_xlim(part.low / 10 ** (0.04 * decades), part.high * 10 ** (0.04 * decades))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 1.5 else (1, 3) if decades < 3 else (1,)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _points(axes: Any, x: np.ndarray, score: np.ndarray, best: np.ndarray) -> None:
    axes.plot(x[~best], score[~best], "o", color=_POINT, markersize=5, alpha=0.75, markeredgewidth=0)
    axes.plot(x[best], score[best], "*", color=_BEST, markersize=13, label="best")


def _by_value(axes: Any, part: Choice, values: list[Any], score: np.ndarray, best: np.ndarray) -> None:
    """Values side by side, their points a little apart so that equal ones are seen."""
    places = np.array([part.values.index(value) for value in values], dtype=float)
    aside = np.random.default_rng(0).uniform(-0.12, 0.12, len(places)) * ~best
    _points(axes, places + aside, score, best)
    axes.set_xticks(range(len(part.values)), [str(value) for value in part.values])
    axes.set_xlim(-0.5, len(part.values) - 0.5)
