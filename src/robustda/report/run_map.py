"""A map of the target: the network's features of some of its examples, laid out in the plane by t-SNE."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robustda.data.domain import Domain
from robustda.errors import DataError, RobustDAError, RobustDAWarning
from robustda.report.run_read import RunRecord

__all__ = ["MOST_POINTS", "TargetMap", "map_target"]

MOST_POINTS = 2000
_FEWEST = 10
_COMPONENTS = 50  # t-SNE works on so many principal components, as its authors do


@dataclass(frozen=True, eq=False)
class TargetMap:
    """Points in the plane, with the predicted class and the label (−1: none) of each."""

    points: np.ndarray
    predicted: np.ndarray
    labels: np.ndarray | None
    examples: int


def map_target(
    run: RunRecord,
    target: Domain | str | os.PathLike[str] | None = None,
    *,
    points: int = MOST_POINTS,
    device: str = "auto",
    **decoding: Any,
) -> TargetMap | str:
    """The map, or the reason why there is none.

    The target is read again from where the run had it, or from `target`; its examples are matched with the run's
    predictions by their ids, so that other data are noticed.
    """
    if points == 0:
        return "It was not asked for."
    if run.predictions is None or not (run.path / "model.json").is_file():
        return "The run holds no model yet."
    from robustda.predict import load

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RobustDAWarning)
            domain = _reached(run, target)
            if isinstance(domain, str):
                return domain
            rows, places = _matched(run, domain, points)
            if len(rows) < _FEWEST:
                return f"Of the examples in {domain.called} only {len(rows)} are those that the run predicted."
            features = _features(load(run.path, device=device), domain.take(rows), decoding)
    except RobustDAError as error:
        return f"The target cannot be used any more: {error}."
    predicted, labels = run.codes("prediction"), run.codes("label")
    assert predicted is not None
    return TargetMap(
        _laid_out(features), predicted[places], None if labels is None else labels[places], len(run.predictions)
    )


def _reached(run: RunRecord, target: Domain | str | os.PathLike[str] | None) -> Domain | str:
    if isinstance(target, Domain):
        return target
    named = run.data["target"] if target is None else target
    if named and Path(named).exists():
        return Domain.read(Path(named))
    if (run.data["source"], run.data["target"]) == ("glyphs", "digits"):
        from robustda.data.builtin import glyphs_to_digits

        return glyphs_to_digits(20)[1]
    where = f"there is nothing at {named} now" if named else "they were given as arrays"
    return f"The target's examples cannot be reached ({where}): give them by --target (in Python target=)."


def _matched(run: RunRecord, domain: Domain, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the domain, spread over it, and their places in predictions.csv."""
    assert run.predictions is not None
    place_of = {identity: place for place, identity in enumerate(run.predictions["id"])}
    pairs = [(row, place_of[str(one)]) for row, one in enumerate(domain.ids.tolist()) if str(one) in place_of]
    chosen = np.unique(np.linspace(0, len(pairs) - 1, min(points, len(pairs))).round().astype(int))
    picked = np.array([pairs[place] for place in chosen], dtype=np.int64).reshape(-1, 2)
    return picked[:, 0], picked[:, 1]


def _features(method: Any, domain: Domain, decoding: dict[str, Any]) -> np.ndarray:
    from robustda.data.batches import Inputs
    from robustda.data.views import at_size, view
    from robustda.methods.task import forward_all
    from robustda.predict import with_features_of

    if domain.kind != ("images" if method.image_size_ else "vectors"):
        raise DataError(f"{domain.called} holds {domain.kind}, and the model was not trained on such")
    if domain.kind == "images":
        # An unreadable image would shift the rows: it was left out by the run, and has no prediction.
        domain = at_size(domain, method.image_size_, strict=True, **decoding)
    else:
        domain = with_features_of(method, domain)
    inputs = Inputs(domain, next(method.network_.parameters()).device, crop=view(method.image_size_)[1])
    return forward_all(method.network_.features, inputs).cpu().numpy()


def _laid_out(features: np.ndarray) -> np.ndarray:
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    components = min(_COMPONENTS, *features.shape)
    reduced = PCA(components, random_state=0).fit_transform(features)
    perplexity = min(30.0, (len(features) - 1) / 3)
    scale = max(1e-12, float(reduced[:, 0].std()))
    start = reduced[:, :2] / scale * 1e-4 if components >= 2 else "random"
    return np.asarray(TSNE(perplexity=perplexity, init=start, random_state=0).fit_transform(reduced))
