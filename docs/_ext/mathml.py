"""Equations as MathML, made while the site is built: pages need no script, no fonts and no network for them."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import pick_math_environment
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def mathml(text: str, **how: bool) -> str:
    """A prime is a prime, not an apostrophe."""
    return str(tex2mathml(text, **how)).replace("<mo>'</mo>", "<mo lspace='0'>′</mo>")


def inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    text = node.astext()
    if "\\\\" in text or "&" in text:
        environment = pick_math_environment(text).rstrip("*")
        text = f"\\begin{{{environment}}}{text}\\end{{{environment}}}"
    translator.body.append(f'<div class="math">{mathml(text, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
