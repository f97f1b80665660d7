"""What a person looks at: the audit of a source, as an object, as files, and as one page."""

from __future__ import annotations

from robustda.report.findings import Audit, audit

__all__ = ["Audit", "audit"]
