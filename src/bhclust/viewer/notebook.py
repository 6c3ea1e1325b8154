"""A tree as a small picture, for notebooks."""

from __future__ import annotations

import html

from bhclust import posterior
from bhclust.report import dendrogram
from bhclust.tree import Tree

MAX_TIPS = 30

_STYLE = "background:#fff;color:#1c2430;font:12px system-ui,sans-serif;max-width:60em;padding:.4em"


def tree_html(tree: Tree) -> str:
    """Return a tree as HTML without scripts: its summary and a drawing of its highest joins.

    Examples
    --------
    >>> page = tree_html(Tree([2, 2, -1], n_leaves=2, leaf_names=("<a>", "b")))
    >>> "&lt;a&gt;" in page, "<a>" in page
    (True, False)
    """
    names = tree.leaf_names or [str(leaf) for leaf in range(tree.n_leaves)]
    labels = [0] * tree.n_leaves if tree.log_odds is None else posterior.cut(tree).tolist()
    caption = html.escape(repr(tree).strip("<>"))
    clusters = "" if tree.log_odds is None else f", {max(labels) + 1} clusters"
    picture = dendrogram.draw(tree, labels, names, max_tips=MAX_TIPS)
    return f'<div style="{_STYLE}"><div>{caption}{clusters}</div>{picture}</div>'
