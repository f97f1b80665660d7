"""Equations as MathML, made while the site is built: pages need no script, no fonts and no network for them."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import pick_math_environment
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_ACCENTS = set("^ˆ~˜∼¯ˉ‾")


def mathml(text: str, **how: bool) -> str:
    """What docutils makes of TeX, made good where the eye minds: a prime is no apostrophe, an index stands beside a
    letter, whether it has an accent or not, and braces are as high as the line.
    """
    made = tex2mathml(text, **how).replace("&ApplyFunction;", "\u2061").replace("<mo>'</mo>", "<mo lspace='0'>′</mo>")
    ElementTree.register_namespace("", _NAMESPACE)
    tree = ElementTree.fromstring(made)
    for element in list(tree.iter(f"{{{_NAMESPACE}}}munderover")):
        letter, index, accent = list(element)
        if accent.text in _ACCENTS:
            element.tag = f"{{{_NAMESPACE}}}msub"
            over = ElementTree.Element(f"{{{_NAMESPACE}}}mover", accent="true")
            over.extend([letter, accent])
            element[:] = [over, index]
    for element in tree.iter(f"{{{_NAMESPACE}}}mo"):
        if element.text in ("{", "}"):
            element.set("stretchy", "false")
    return ElementTree.tostring(tree, encoding="unicode")


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
