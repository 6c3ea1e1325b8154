"""Formulas as MathML: every browser of today draws it, without scripts and without a network."""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

# \log f: the converter leaves no room between a function and what follows it.
FUNCTION = re.compile(r"(<mi>(?:log|exp|min|max)</mi>)(?=<m(?:i|sub|sup|subsup)>)")


def mathml(formula: str, display: str) -> str:
    """Return a formula as MathML."""
    return FUNCTION.sub(r'\1<mspace width="0.17em"/>', convert(formula, display=display))


def _inline(translator: Any, node: Any) -> None:
    translator.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _display(translator: Any, node: Any) -> None:
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    label = f' id="{html.escape(node["ids"][0])}"' if node.get("ids") else ""
    formula = mathml(node.astext(), "block")
    translator.body.append(f'<div class="formula"{label}>{number}{formula}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
