"""robustda: domain adaptation when the source data are noisy.

    from robustda import RDA

    model = RDA(noise_rate="auto").fit("web", "camera")  # folders, tables, or Domains
    model.predict("camera")
    model.trust_, model.noise_rate_

The same for scikit-learn: ``RDAClassifier().fit(X, y, X_target=Xt)``, and one such estimator for each method.

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from robustda._version import __version__

if TYPE_CHECKING:
    from robustda.data.domain import Domain
    from robustda.decisions import apply_decisions
    from robustda.errors import RobustDAError, RobustDAWarning
    from robustda.estimators import (
        ADDAClassifier,
        ClarityClassifier,
        ConcordClassifier,
        DANClassifier,
        DANNClassifier,
        MDDClassifier,
        MentorNetClassifier,
        PrototypesClassifier,
        RDAClassifier,
        RTNClassifier,
        SourceOnlyClassifier,
        SPLClassifier,
        TCLClassifier,
    )
    from robustda.methods import MDD, RDA, Clarity, Concord, Method, SourceOnly, create_method
    from robustda.noise.corrupt import corrupt
    from robustda.predict import load
    from robustda.report.findings import audit
    from robustda.report.run_report import report

_HOMES = {
    "Clarity": "robustda.methods",
    "Concord": "robustda.methods",
    "Domain": "robustda.data.domain",
    "MDD": "robustda.methods",
    "Method": "robustda.methods",
    "RDA": "robustda.methods",
    "RobustDAError": "robustda.errors",
    "RobustDAWarning": "robustda.errors",
    "SourceOnly": "robustda.methods",
    "apply_decisions": "robustda.decisions",
    "audit": "robustda.report.findings",
    "corrupt": "robustda.noise.corrupt",
    "create_method": "robustda.methods",
    "load": "robustda.predict",
    "report": "robustda.report.run_report",
}

__all__ = [
    "MDD",
    "RDA",
    "ADDAClassifier",
    "Clarity",
    "ClarityClassifier",
    "Concord",
    "ConcordClassifier",
    "DANClassifier",
    "DANNClassifier",
    "Domain",
    "MDDClassifier",
    "MentorNetClassifier",
    "Method",
    "PrototypesClassifier",
    "RDAClassifier",
    "RTNClassifier",
    "RobustDAError",
    "RobustDAWarning",
    "SPLClassifier",
    "SourceOnly",
    "SourceOnlyClassifier",
    "TCLClassifier",
    "__version__",
    "apply_decisions",
    "audit",
    "corrupt",
    "create_method",
    "load",
    "report",
]


def __getattr__(name: str) -> Any:
    # Every method has an estimator, which is made when it is asked for: one from another package has its own here, too.
    home = "robustda.estimators" if name.endswith("Classifier") else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'robustda' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return __all__
