"""Links that lead somewhere both in the repository's own pages and on the site.

``[text](api/page.md#robustda.name)`` opens the page there, and the very entry here; files at the top of the repository
that the site includes are linked to where they are included.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_OBJECT = re.compile(r"\[`([^`\]]+)`\]\([\w./]*api/\w+\.md#(robustda[\w.]+)\)")
_AT_THE_TOP = re.compile(r"\]\((?:\.\./)*(CHANGELOG|CONTRIBUTING|SECURITY)\.md")


def rewrite(app: Sphinx, page: str, source: list[str]) -> None:
    """Sphinx's hook: the text of a page before it is read."""
    text = _OBJECT.sub(r"{py:obj}`\1 <\2>`", source[0])
    source[0] = _AT_THE_TOP.sub(lambda link: f"](/project/{link[1].lower()}.md", text)


def included(app: Sphinx, path: Any, page: str, source: list[str]) -> None:
    """The same for a file at the top: what it calls docs/x.md is /x.md here, where / is the site."""
    text = source[0].replace("](docs/", "](/")
    source[0] = _AT_THE_TOP.sub(lambda link: f"](/project/{link[1].lower()}.md", text)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", rewrite)
    app.connect("include-read", included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
