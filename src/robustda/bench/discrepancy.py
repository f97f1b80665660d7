"""The paper's theorem on feature noise as a figure: the terms of its bound against the share of corrupted images, A→W.

Measured on frozen features (`robustda.theory`): what corrupted images do to the distance between the domains before any
training has had a chance to undo it. Q' are the images that are not corrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustda.bench.data import noise_record, noisy_domain, prepare, target_domain
from robustda.theory import measure_terms

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["draw_discrepancy", "measure_discrepancy"]

RATES = (0.0, 0.2, 0.4, 0.6, 0.8)
_LINES = {
    "A-distance / 2": ("divergence", "#000000", "o", "-"),
    "MDD, source to target": ("discrepancy", "#0072B2", "s", "-"),
    "PMD, all of the source to Q'": ("to_proxy", "#D55E00", "^", "--"),
    "PMD, Q' to the target": ("from_proxy", "#009E73", "v", "--"),
    "mistakes on the source": ("error", "#CC79A7", "D", ":"),
    "mistakes + MDD": ("at_stake", "#E69F00", "X", "-"),
}


def measure_discrepancy(root: Path, work: Path, seeds: Sequence[int], *, device: str = "auto") -> pd.DataFrame:
    """Every term at every rate, a line for each seed; features of corrupted images are made where they are missing."""
    import pandas as pd

    target = np.asarray(target_domain(root, "features", "webcam", work).x)
    lines = []
    for rate in RATES:
        prepare(root, "features", "amazon", "feature", rate, "authors", work, device=device)
        source = noisy_domain(root, "features", "amazon", "feature", rate, "authors", work)
        proxy = np.ones(len(source), dtype=bool)
        if rate:
            record = noise_record(root, "amazon", "feature", rate, "authors")
            proxy = ~np.isin(source.ids, record.ids[record.corrupted_features])
        for seed in seeds:
            n_classes = len(source.classes)
            found = measure_terms(source.x, source.y, target, n_classes=n_classes, proxy=proxy, seed=seed)  # type: ignore[arg-type]
            values = {name: getattr(found, name).value for _, (name, *_) in _LINES.items() if name != "at_stake"}
            lines.append({"rate": rate, "seed": seed, **values, "at_stake": found.at_stake})
    return pd.DataFrame(lines)


def draw_discrepancy(table: pd.DataFrame, paths: Sequence[Path]) -> None:
    """One line for each term, with the spread between seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    means, spread = table.groupby("rate").mean(), table.groupby("rate").std(ddof=0)
    rates = 100 * means.index.to_numpy()
    for label, (name, colour, marker, style) in _LINES.items():
        scale = 0.5 if name == "divergence" else 1.0
        values, around = scale * means[name].to_numpy(), scale * spread[name].to_numpy()
        axes.plot(rates, values, color=colour, marker=marker, markersize=5, linestyle=style, linewidth=1.6, label=label)
        axes.fill_between(rates, values - around, values + around, color=colour, alpha=0.12, linewidth=0)
    axes.set_xticks(rates)
    axes.set_ylim(-0.02, 1.05)
    axes.set_xlabel("share of the source's images that are corrupted (%)")
    axes.set_ylabel("measured on held-out examples")
    axes.set_title("A→W: the terms of the bound under feature noise", loc="left", fontsize=11)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for path in paths:
        figure.savefig(path, dpi=150)
