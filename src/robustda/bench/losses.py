"""The paper's figure of losses: how the mean losses of stage 1 spread over right, wrong and corrupted examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustda.bench.cells import Cell, Protocol
from robustda.bench.data import noise_record

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GROUPS", "collect_losses", "draw_losses", "loss_cells"]

GROUPS = ("all right", "wrong label", "corrupted image", "both")
_COLOURS = {"all right": "#0072B2", "wrong label": "#D55E00", "corrupted image": "#009E73", "both": "#000000"}
_STYLES = {"all right": "-", "wrong label": "--", "corrupted image": "-.", "both": ":"}


def loss_cells(protocol: Protocol = "features", seeds: Sequence[int] = (0, 1, 2), rate: float = 0.4) -> list[Cell]:
    """Stage 1 on amazon under each noise. Stage 2 has no part in the figure and is cut to one step."""
    return [
        Cell("rda", "amazon", "webcam", noise, rate, seed, 1, protocol)
        for noise in ("label", "feature", "mixed")
        for seed in seeds
    ]


def collect_losses(cells: Sequence[Cell], out: Path, root: Path) -> pd.DataFrame:
    """Every example of every cell that is done: noise, seed, group, mean loss, and whether it was trusted."""
    import pandas as pd

    tables = []
    for cell in cells:
        file = out / "cells" / cell.key / "trust.csv"
        if not file.exists():
            continue
        table = pd.read_csv(file)
        record = noise_record(root, cell.source, cell.noise, cell.rate, cell.draw)
        number = record.wrong_labels.astype(int) + 2 * record.corrupted_features.astype(int)
        group = dict(zip(record.ids.tolist(), np.array(GROUPS)[number].tolist(), strict=True))
        tables.append(
            pd.DataFrame(
                {
                    "noise": cell.noise,
                    "seed": cell.seed,
                    "group": table["id"].map(group),
                    "mean_loss": table["mean_loss"],
                    "trusted": table["weight"] > 0,
                }
            )
        )
    columns = ["noise", "seed", "group", "mean_loss", "trusted"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def draw_losses(table: pd.DataFrame, path: Path) -> None:
    """One panel a noise: the density of mean losses, a line for each group of examples, over all seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    noises = list(dict.fromkeys(table["noise"]))
    figure = Figure(figsize=(3.4 * len(noises), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(noises), sharey=True, squeeze=False)[0]
    edges = np.linspace(0, float(table["mean_loss"].quantile(0.995)), 41)
    for panel, noise in zip(axes, noises, strict=True):
        part = table[table["noise"] == noise]
        for group in GROUPS:
            some = part[part["group"] == group]
            if not len(some):
                continue
            density, _ = np.histogram(some["mean_loss"], bins=edges, density=True)
            kept = some["trusted"].mean()
            style = {"color": _COLOURS[group], "linestyle": _STYLES[group], "linewidth": 1.8}
            panel.plot((edges[1:] + edges[:-1]) / 2, density, label=f"{group}: {kept:.0%} trusted", **style)
        panel.set_title(f"{noise} noise", loc="left", fontsize=11)
        panel.set_xlabel("mean loss over stage 1")
        panel.legend(frameon=False, fontsize=8)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    axes[0].set_ylabel("density")
    figure.savefig(path, dpi=150)
