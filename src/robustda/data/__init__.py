"""Where examples come from: `Domain` and the ways to read one; `check_pair` sees that two fit together."""

from __future__ import annotations

from robustda.data.domain import Domain, check_pair
from robustda.data.images import ImageFiles, read_image

__all__ = ["Domain", "ImageFiles", "check_pair", "read_image"]
