"""A vector for each example, by which examples are compared: a backbone's features, given ones, vectors or pixels."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from robustda.columns import Rows, Table
from robustda.data.domain import Domain
from robustda.data.views import at_size, view
from robustda.data.wording import listed, plural
from robustda.errors import DataError, RobustDAWarning

__all__ = ["DescribedBy", "Features", "described", "features_by_id"]

Single = npt.NDArray[np.float32]
DescribedBy = Literal["backbone", "pixels", "vectors", "rows of a table", "given features"]
Features = Domain | str | os.PathLike[str] | npt.ArrayLike


def described(
    domain: Domain, features: Domain | None, looking: dict[str, Any], table: Table | None = None
) -> tuple[Domain, Single, DescribedBy]:
    """The domain with its images decoded, and a vector for each example; `looking` is what `extract_features` takes.

    Rows of a `table` are seen as a fit sees them; other vectors are what they are.
    """
    if domain.kind == "vectors" and features is None:
        rows = np.asarray(domain.x, dtype=np.float32)
        if table is not None:
            return domain, np.asarray(Rows(table, rows)), "rows of a table"
        return domain, rows, "vectors"
    if domain.kind == "images":
        decoding = {name: looking[name] for name in ("cache_dir", "strict", "progress")}
        domain = at_size(domain, looking["image_size"], **decoding)
    if features is not None:
        return domain, _matched(features, domain), "given features"
    if _pretrained(domain, looking):
        from robustda.features import extract_features

        return domain, np.asarray(extract_features(domain, **looking).x, dtype=np.float32), "backbone"
    return domain, _pixels(domain), "pixels"


def features_by_id(features: Features, ids: np.ndarray) -> Domain:
    """Given features with their ids: those that came with them, or, for an array, those of the examples in order."""
    if isinstance(features, Domain | str | os.PathLike):
        table = features if isinstance(features, Domain) else Domain.read(Path(features))
        if table.kind != "vectors":
            raise DataError(f"{table.called} holds images: give their features, such as robustda features writes")
        return table
    x = np.asarray(features, dtype=np.float32)
    if x.ndim != 2 or len(x) != len(ids):
        raise DataError(f"{plural(len(ids), 'example')} came with features of shape {x.shape}: give a row for each")
    return Domain.from_arrays(x, ids=ids, name="the features")


def _matched(features: Domain, domain: Domain) -> Single:
    """The features in the order of the domain's examples, of which some may have been dropped or be unreadable."""
    rows = {identity: row for row, identity in enumerate(features.ids.tolist())}
    if missing := [identity for identity in domain.ids.tolist() if identity not in rows]:
        raise DataError(
            f"the features lack {plural(len(missing), 'example')} of {domain.called}, first {listed(missing, 2)}: "
            "make them from the same data"
        )
    x = np.asarray(features.x)
    return np.asarray(x[[rows[identity] for identity in domain.ids.tolist()]], dtype=np.float32)


def _pretrained(domain: Domain, looking: dict[str, Any]) -> bool:
    """Whether the backbone knows anything; it is built without fetching weights to find out."""
    from robustda.methods.base import Method

    method = Method(backbone=looking["backbone"], weights=looking["weights"])
    side = view(domain.shape[0])[1] or domain.shape[0]
    known = method.make_backbone((side, side, 3), pretrained=False).pretrained
    if not known and domain.shape[0] > 64:
        message = (
            "the backbone has no pretrained weights, so images are compared by their pixels, which say little about "
            "photographs: give --weights, or features"
        )
        warnings.warn(message, RobustDAWarning, stacklevel=4)
    return known


def _pixels(domain: Domain) -> Single:
    import torch

    from robustda.data.batches import Inputs
    from robustda.methods.task import forward_all
    from robustda.nets import Pixels

    return forward_all(Pixels(), Inputs(domain, torch.device("cpu"))).numpy()
