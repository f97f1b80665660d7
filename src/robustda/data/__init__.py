"""Where examples come from: `Domain` and the ways to read one; `check_pair` sees that two fit together."""

from __future__ import annotations

from robustda.data.domain import Domain
from robustda.data.images import ImageFiles, read_image
from robustda.data.pairs import check_pair

__all__ = ["Domain", "ImageFiles", "check_pair", "read_image"]
