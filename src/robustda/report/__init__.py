"""What a person looks at: the audit of a source and the report of runs, as objects, as files, and as one page each.

The room can be called, too: ``robustda.report(run)`` is `report`, whichever of the two the name stands for.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from robustda.report.findings import Audit, audit
from robustda.report.run_report import RunReport, report

__all__ = ["Audit", "RunReport", "audit", "report"]


class _Room(ModuleType):
    def __call__(self, *runs: Any, **options: Any) -> RunReport:
        return report(*runs, **options)


sys.modules[__name__].__class__ = _Room
