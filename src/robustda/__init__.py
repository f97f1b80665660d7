"""robustda: domain adaptation when the source data are noisy.

    from robustda import RDA, Domain

    model = RDA(noise_rate="auto").fit(Domain.from_folder("web"), Domain.from_folder("camera"))
    model.predict("camera")
    model.trust_, model.noise_rate_

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from robustda._version import __version__

if TYPE_CHECKING:
    from robustda.data.domain import Domain
    from robustda.errors import RobustDAError, RobustDAWarning
    from robustda.methods import MDD, RDA, Method, SourceOnly, create_method
    from robustda.noise.corrupt import corrupt
    from robustda.predict import load

_HOMES = {
    "Domain": "robustda.data.domain",
    "MDD": "robustda.methods",
    "Method": "robustda.methods",
    "RDA": "robustda.methods",
    "RobustDAError": "robustda.errors",
    "RobustDAWarning": "robustda.errors",
    "SourceOnly": "robustda.methods",
    "corrupt": "robustda.noise.corrupt",
    "create_method": "robustda.methods",
    "load": "robustda.predict",
}

__all__ = [
    "MDD",
    "RDA",
    "Domain",
    "Method",
    "RobustDAError",
    "RobustDAWarning",
    "SourceOnly",
    "__version__",
    "corrupt",
    "create_method",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'robustda' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
