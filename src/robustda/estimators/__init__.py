"""The scikit-learn face: a classifier for every method, made from the method's own dataclass.

    from robustda import RDAClassifier

    model = RDAClassifier(steps=500).fit(X, y, X_target=Xt)
    model.predict(Xt), model.trust_, model.noise_rate_

Every registered method has one, `RDA` the `RDAClassifier` and so on, without a line to be written for it. They take
vectors; for images use the methods themselves, which read folders and augment.
"""

from __future__ import annotations

from typing import Any

from robustda.estimators.base import DomainAdaptationClassifier
from robustda.estimators.make import estimator_class, estimator_name
from robustda.methods import method_class, method_names

__all__ = ["DomainAdaptationClassifier", "estimator_class"]


def __getattr__(name: str) -> Any:
    for method in method_names():
        if estimator_name(method_class(method)) == name:
            return estimator_class(method)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(estimator_name(method_class(method)) for method in method_names())])
