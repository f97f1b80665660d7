"""A source and a target that fit together: of one kind and width, the source labelled, the target with its classes."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from robustda.data.domain import Domain
from robustda.data.inputs import rows_not_finite
from robustda.data.labels import match_names
from robustda.data.wording import listed, plural
from robustda.errors import DataError, RobustDAWarning

__all__ = ["check_pair"]


def check_pair(source: Domain, target: Domain) -> tuple[Domain, Domain]:
    """A source to learn from and a target to adapt to that fit together, or one line that says why not.

    Source examples without a label are dropped. Both come back with the classes of the source; labels that
    the target carries are matched by name (3 and "3" are one) and dropped if none is a class of the source.
    """
    for domain, role in ((source, "source"), (target, "target")):
        if not len(domain):
            raise DataError(f"the {role} {domain.called} has no examples")
    source = _labelled(source)
    if source.kind != target.kind:
        raise DataError(
            f"the source {source.called} holds {source.kind} but the target {target.called} holds "
            f"{target.kind}: both must be of one kind"
        )
    if source.kind == "vectors":
        target = _of_same_width(source, target)
        for domain in (source, target):
            bad = rows_not_finite(np.asarray(domain.x))
            if len(bad):
                raise DataError(
                    f"{len(bad):,} of {plural(len(domain), 'row')} in {domain.called} have NaN or infinite "
                    f"features (first ids {listed(domain.ids[bad[:3]])}): fill them in or remove these rows"
                )
    return source, _with_classes_of(source, target)


def _labelled(source: Domain) -> Domain:
    if source.y is None:
        raise DataError(
            f"the source {source.called} has no labels: a source needs one sub-folder a class, "
            "a label column in its table, or the array y"
        )
    missing = int((source.y < 0).sum())
    if missing:
        share = f"{missing:,} of {plural(len(source), 'example')}"
        message = f"{share} in the source {source.called} have no label: they are left out"
        warnings.warn(message, RobustDAWarning, stacklevel=3)
        source = source.take(source.y >= 0)
    counts = source.class_counts()
    if (counts > 0).sum() < 2:
        only = listed(source.classes[counts > 0])
        raise DataError(
            f"the source {source.called} has one class only ({only}): at least two are needed; "
            "if the class folders lie deeper, give the folder that holds them"
        )
    if (counts == 0).any():
        raise DataError(
            f"the source {source.called} has no example of {listed(source.classes[counts == 0])}: "
            "add examples, or remove the class"
        )
    return source


def _of_same_width(source: Domain, target: Domain) -> Domain:
    if source.features and target.features and set(source.features) == set(target.features):
        return target.select_features(source.features)
    if source.shape == target.shape and not (source.features and target.features):
        return target
    differ = sorted(set(source.features) ^ set(target.features)) if source.features and target.features else []
    columns = f"; columns that only one of them has: {listed(differ)}" if differ else ""
    raise DataError(
        f"source and target need the same features, but {source.called} has {source.shape[0]} "
        f"and {target.called} has {target.shape[0]}{columns}"
    )


def _with_classes_of(source: Domain, target: Domain) -> Domain:
    if target.y is None:
        return replace(target, classes=source.classes)
    used = np.flatnonzero(target.class_counts())
    places = match_names(target.classes[used], source.classes)
    unknown = target.classes[used[places < 0]]
    if len(unknown) == len(used):
        message = (
            f"none of the target's classes ({listed(unknown, 3)}) is a class of the source "
            f"({listed(source.classes, 3)}): {target.called} is taken as unlabelled"
        )
        warnings.warn(message, RobustDAWarning, stacklevel=3)
        return replace(target, y=None, classes=source.classes)
    if len(unknown):
        raise DataError(
            f"the target {target.called} has classes that the source {source.called} lacks: "
            f"{listed(unknown)}; add examples to the source, remove them from the target, "
            "or ignore the target's labels (--target_labels ignore, in Python target.unlabelled())"
        )
    codes = np.full(len(target.classes) + 1, -1, dtype=np.int64)  # the last place serves the code -1
    codes[used] = places
    return replace(target, y=codes[target.y], classes=source.classes)
