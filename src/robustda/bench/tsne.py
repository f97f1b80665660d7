"""The paper's t-SNE figure: the target as networks of several methods see it, A→W under mixed corruption of 40 %."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robustda.bench.cells import TARGET_FEATURES, Cell, Protocol

__all__ = ["draw_tsne", "embed", "forget_without_features", "separation", "tsne_cells"]

_METHODS = ("dann", "tcl", "rda")


def tsne_cells(
    protocol: Protocol = "features", seed: int = 0, steps: int = 0, methods: Sequence[str] = ()
) -> list[Cell]:
    """One run of each method."""
    steps = steps or (3000 if protocol == "finetune" else 2000)
    return [Cell(m, "amazon", "webcam", "mixed", 0.4, seed, steps, protocol) for m in methods or _METHODS]


def forget_without_features(cells: Sequence[Cell], out: Path) -> None:
    """Cells that were run for a table kept no features: they are run again."""
    for cell in cells:
        folder = out / "cells" / cell.key
        if (folder / "cell.json").exists() and not (folder / TARGET_FEATURES).exists():
            shutil.rmtree(folder)


def embed(features: np.ndarray, seed: int = 0) -> np.ndarray:
    """Two dimensions in which neighbours stay neighbours."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    centred = PCA(min(50, *features.shape), random_state=seed).fit_transform(features)
    perplexity = min(30.0, (len(features) - 1) / 3)
    placed: np.ndarray = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(centred)
    return placed


def separation(features: np.ndarray, labels: np.ndarray, neighbours: int = 5) -> float:
    """The share of an example's nearest neighbours, in the features themselves, that are of its own class."""
    from sklearn.neighbors import NearestNeighbors

    count = min(neighbours, len(features) - 1)
    found = NearestNeighbors(n_neighbors=count + 1).fit(features).kneighbors(return_distance=False)[:, :count]
    return float((labels[found] == labels[:, None]).mean())


def draw_tsne(cells: Sequence[Cell], out: Path, paths: Sequence[Path]) -> dict[str, tuple[float, float]]:
    """A panel for each cell that is done, coloured by true class; returns accuracy and separation of each method."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from robustda.bench.results import accuracy_of

    done = [cell for cell in cells if (out / "cells" / cell.key / TARGET_FEATURES).exists()]
    figure = Figure(figsize=(3.6 * max(1, len(done)), 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    found = {}
    for panel, cell in zip(figure.subplots(1, len(done), squeeze=False)[0] if done else (), done, strict=True):
        with np.load(out / "cells" / cell.key / TARGET_FEATURES, allow_pickle=False) as arrays:
            features, labels = arrays["x"], arrays["y"]
        accuracy, apart = accuracy_of(cell, out), separation(features, labels)
        found[cell.method] = (accuracy, apart)
        placed = embed(features)
        panel.scatter(*placed.T, s=7, c=colormaps["turbo"]((labels * 7 % 31) / 30), linewidths=0)
        # No palette has thirty colours that all can be told apart: letters say where each class has its middle.
        for number in np.unique(labels):
            name = chr(65 + number % 26) + ("" if number < 26 else str(number // 26))
            centre = np.median(placed[labels == number], axis=0)
            panel.annotate(name, centre, fontsize=7, weight="bold", ha="center", va="center")
        panel.set_title(f"{cell.method}: {accuracy:.1%} right", loc="left", fontsize=11)
        panel.set_xlabel(f"{apart:.0%} of 5 nearest neighbours are of the same class", fontsize=9)
        panel.set_xticks([])
        panel.set_yticks([])
    for path in paths:
        figure.savefig(path, dpi=150)
    return found
