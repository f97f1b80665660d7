"""Figures of the paper, drawn from the same results as its tables: PNG and SVG, legible without colour."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from robustda.bench.tables import Filled

__all__ = ["FIGURES", "noise_levels", "write_figures"]

# Okabe and Ito's palette, which stays apart under the common kinds of colour blindness; markers tell the rest.
_FRONT = {
    "rda": "#D55E00",
    "mdd": "#0072B2",
    "tcl": "#E69F00",
    "prototypes": "#009E73",
    "source_only": "#000000",
    "concord": "#CC79A7",
    "clarity": "#882255",
}
_BEHIND = ("#56B4E9", "#999933", "#7F7F7F")
_MARKERS = "osD^v<>Xph*"


def noise_levels(filled: Filled, path: Path) -> None:
    """Accuracy against the rate of noise, a line for each method, with the spread between repetitions.

    The paper's own curves lie behind, dashed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    rates = [100 * column.rate for column in filled.columns]
    means, spread = np.nanmean(filled.values, axis=2), np.nanstd(filled.values, axis=2)
    places = _apart(means[:, -1])
    for number, row in enumerate(filled.rows):
        front, marker = row.method in _FRONT, _MARKERS[number % len(_MARKERS)]
        colour = _FRONT[row.method] if front else _BEHIND[number % len(_BEHIND)]
        style = {"linewidth": 2.2 if row.method == "rda" else 1.3, "alpha": 1.0 if front else 0.75}
        axes.plot(rates, means[number], color=colour, marker=marker, markersize=5, **style)  # type: ignore[arg-type]
        if row.paper:
            published = [row.paper[filled.experiment.columns.index(column)] for column in filled.columns]
            axes.plot(rates, published, color=colour, ls=(0, (4, 3)), linewidth=0.9, alpha=0.55, zorder=1)
        low, high = means[number] - spread[number], means[number] + spread[number]
        axes.fill_between(rates, low, high, color=colour, alpha=0.12, linewidth=0)
        weight = "bold" if row.method == "rda" else "normal"
        axes.annotate(
            f"{row.label} {means[number, -1]:.0f}",
            (rates[-1], means[number, -1]),
            xytext=(rates[-1] + 3, places[number]),
            color=colour,
            va="center",
            fontsize=9,
            weight=weight,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6},
            annotation_clip=False,
        )
    if any(row.paper for row in filled.rows):
        axes.plot([], [], color="#555555", ls=(0, (4, 3)), linewidth=0.9, label="the paper's, fine-tuned")
        axes.legend(frameon=False, fontsize=8, loc="lower left")
    axes.set_xticks(rates)
    axes.set_xlim(min(rates) - 2, max(rates) + 22)
    axes.set_xlabel(f"share of the source with {filled.columns[0].noise} corruption (%)")
    axes.set_ylabel("target accuracy (%), final iteration")
    axes.set_title(filled.experiment.title, loc="left", fontsize=11)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)


FIGURES = {"fig-noise-levels": noise_levels, "table6": noise_levels}


def write_figures(filled: Filled, folder: Path) -> list[Path]:
    """The experiment's figure, if it has one and something is done."""
    draw = FIGURES.get(filled.experiment.name)
    if draw is None or not np.isfinite(filled.values).any(axis=(0, 2)).all():
        return []
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{filled.experiment.name}{suffix}" for suffix in (".png", ".svg")]
    for path in paths:
        draw(filled, path)
    return paths


def _apart(values: np.ndarray, least: float = 3.4) -> np.ndarray:
    """The values moved up where they lie so close that their labels would overlap."""
    placed = np.array(values, dtype=float)
    order = np.argsort(placed)
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + least)
    centred: np.ndarray = placed - (placed - values).mean()
    return centred
