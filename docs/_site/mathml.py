"""Formulas as MathML: every browser of today draws it, without scripts and without a network."""

from __future__ import annotations

import html
from typing import Any

from latex2mathml.converter import convert


def _inline(translator: Any, node: Any) -> None:
    from docutils import nodes

    translator.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def _display(translator: Any, node: Any) -> None:
    from docutils import nodes

    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    label = f' id="{html.escape(node["ids"][0])}"' if node.get("ids") else ""
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula"{label}>{number}{formula}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
