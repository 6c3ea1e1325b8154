"""A fit on a terminal: the summary in words, the top of the tree in line-drawing characters."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._cluster_tree import cluster_tree
from bhclust._validation import IntArray
from bhclust.report.dendrogram import layout
from bhclust.report.scores import Scores
from bhclust.report.summary import Summary, describe_feature
from bhclust.tree import Tree

MAX_TIPS = 16
_SHOWN_CLUSTERS = 20
_LEAST_WIDTH = 40
_LONGEST_NAME = 24

# Directions in which a line leaves a cell.
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_UNICODE = {
    0: " ", _LEFT: "─", _RIGHT: "─", _LEFT | _RIGHT: "─", _UP | _DOWN: "│",
    _DOWN | _RIGHT: "┌", _UP | _RIGHT: "└", _DOWN | _LEFT: "┐", _UP | _LEFT: "┘",
    _UP | _DOWN | _RIGHT: "├", _UP | _DOWN | _LEFT: "┤",
    _DOWN | _LEFT | _RIGHT: "┬", _UP | _LEFT | _RIGHT: "┴",
    _UP | _DOWN | _LEFT | _RIGHT: "┼",
}  # fmt: skip
_ASCII = {
    mask: " " if character == " " else "-" if character == "─" else "|" if character == "│" else "+"
    for mask, character in _UNICODE.items()
}


class Style(NamedTuple):
    """What a terminal can show: how many columns, and whether more than ASCII."""

    width: int = 80
    unicode: bool = True


def as_text(
    summary: Summary,
    tree: Tree | None = None,
    labels: IntArray | None = None,
    style: Style | None = None,
) -> str:
    """Return a summary as lines for a terminal.

    Parameters
    ----------
    summary : Summary
    tree : Tree, optional
        Its top is drawn below the words.
    labels : array of int, optional
        The cluster of each leaf of the tree.
    style : Style, optional
        Width and characters of the terminal.
    """
    style = Style() if style is None else style
    width = max(style.width, _LEAST_WIDTH)
    kinds = Counter(column.kind for column in summary.columns)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    lines = [
        f"rows          {summary.n_rows}",
        f"columns       {len(summary.columns)} ({counted}), {summary.n_missing} missing value(s)",
        f"model         {summary.model} ({summary.method})",
        f"log evidence  {summary.log_evidence:.2f}",
    ]
    if summary.scores is not None:
        lines.append(f"classes       {scores_text(summary.scores)}")
    lines.append(f"clusters      {len(summary.clusters)}")
    shown = summary.clusters[:_SHOWN_CLUSTERS]
    for cluster in shown:
        unit = "row " if cluster.size == 1 else "rows"
        head = f"  {cluster.label:>3}  {cluster.size:>6} {unit}  "
        told = [describe_feature(feature) for feature in cluster.features]
        lines += [line.rstrip() for line in _packed(head, told, width)]
    if len(summary.clusters) > len(shown):
        rest = summary.clusters[len(shown) :]
        lines.append(f"  and {len(rest)} more with {sum(one.size for one in rest)} rows in all")
    if tree is not None and tree.n_leaves > 1:
        lines += ["", *draw_text(tree, labels, style)]
    text = "\n".join(lines)
    return text if style.unicode else text.encode("ascii", "replace").decode("ascii")


def _packed(head: str, parts: Sequence[str], width: int) -> list[str]:
    """Return phrases behind a head, as many a line as fit, further lines indented."""
    room = width - len(head)
    lines = [head]
    used = 0
    for place, part in enumerate(parts):
        phrase = clipped(part, room - 1) + (";" if place < len(parts) - 1 else "")
        if used and used + 1 + display_width(phrase) > room:
            lines.append(" " * len(head))
            used = 0
        lines[-1] += (" " if used else "") + phrase
        used += display_width(phrase) + (1 if used else 0)
    return lines


def scores_text(scores: Scores) -> str:
    """Return scores against classes as one phrase."""
    parts = [
        f"purity {scores.purity:.3f}",
        f"adjusted Rand {scores.adjusted_rand_index:.3f}",
    ]
    if scores.dendrogram_purity is not None:
        parts.append(f"dendrogram purity {scores.dendrogram_purity:.3f}")
    return f"{scores.n_classes} ({', '.join(parts)})"


def draw_text(tree: Tree, labels: IntArray | None = None, style: Style | None = None) -> list[str]:
    """Return the top of a tree as lines, one a tip, the root at the left.

    Parameters
    ----------
    tree : Tree
    labels : array of int, optional
        The cluster of each leaf: the tree above the clusters is drawn, as far as it has room.
    style : Style, optional
        Width and characters of the terminal.

    Examples
    --------
    >>> from bhclust.tree import Tree
    >>> tree = Tree([4, 4, 5, 5, 6, 6, -1], n_leaves=4, leaf_names=("ant", "bee", "cat", "dog"))
    >>> print("\\n".join(draw_text(tree, style=Style(width=40))))
    ┌──────────────────────┬──────────── ant
    │                      └──────────── bee
    └──────────┬──────────────────────── cat
               └──────────────────────── dog
    """
    style = Style() if style is None else style
    n_clusters = 1 if labels is None else int(np.max(labels)) + 1
    if labels is not None and n_clusters > 1:
        above = cluster_tree(tree, np.asarray(labels))
        drawn = above.tree
        names = _cluster_names(tree, drawn, above.nodes)
    else:
        drawn, names = tree, _leaf_names(tree)
    place = layout(drawn, max_tips=MAX_TIPS)
    tips = {
        int(row): names[node]
        for node, row, tip in zip(place.nodes.tolist(), place.y, place.is_tip, strict=True)
        if tip
    }
    width = max(style.width, _LEAST_WIDTH)
    longest = max(display_width(name) for name in tips.values())
    span = max(width - 1 - min(longest, width // 2), 10)
    rows = np.floor(place.y).astype(int)
    columns = np.rint((1 - place.x) * (span - 2)).astype(int)
    columns[place.is_tip] = span - 1
    cells = np.zeros((len(tips), span), dtype=np.int64)
    for i, above_i in enumerate(place.parent.tolist()):
        if above_i >= 0:
            _connect(cells, rows[i], columns[i], rows[above_i], columns[above_i])
    characters = _UNICODE if style.unicode else _ASCII
    return [
        "".join(characters[mask] for mask in cells[row].tolist())
        + " "
        + clipped(tips[row], width - span - 1)
        for row in range(len(tips))
    ]


def _connect(cells: npt.NDArray[np.int64], row: int, column: int, to_row: int, to: int) -> None:
    """Draw from a node to the left and then along its parent's column to the parent's row."""
    cells[row, to + 1 : column + 1] |= _LEFT
    cells[row, to + 1 : column] |= _RIGHT
    cells[row, column] |= 0 if column > to else _RIGHT
    cells[row, to] |= _RIGHT
    if row == to_row:
        return
    first, last = min(row, to_row), max(row, to_row)
    cells[first, to] |= _DOWN
    cells[last, to] |= _UP
    cells[first + 1 : last, to] |= _UP | _DOWN


def _leaf_names(tree: Tree) -> list[str]:
    names = tree.leaf_names or tuple(f"row {i}" for i in range(tree.n_leaves))
    below = [f"{size} rows" for size in tree.size[tree.n_leaves :].tolist()]
    return [clipped(name, _LONGEST_NAME) for name in names] + below


def _cluster_names(tree: Tree, drawn: Tree, nodes: IntArray) -> list[str]:
    size = tree.size[nodes].tolist()
    n_below = drawn.size.tolist()
    return [
        f"{node}: {_rows(size[node])}"
        if node < drawn.n_leaves
        else f"{n_below[node]} clusters, {_rows(size[node])}"
        for node in range(drawn.n_nodes)
    ]


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def clipped(text: str, width: int) -> str:
    """Return a text in at most so many columns, without characters that steer a terminal.

    Examples
    --------
    >>> clipped("a long name", 7), clipped("tab\\tand \\x1b[31mred", 40)
    ('a long…', 'tab?and ?[31mred')
    """
    joiners = "\u200d\ufe0f"  # these hold emoji together
    safe = "".join(
        one if one in joiners or not unicodedata.category(one).startswith("C") else "?"
        for one in text
    )
    if display_width(safe) <= width:
        return safe
    taken, used = [], 0
    for character in safe:
        used += _width(character)
        if used > width - 1:
            break
        taken.append(character)
    return "".join(taken) + "…"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells in columns, numbers to the right."""
    cells = [tuple(map(str, header)), *(tuple(map(str, row)) for row in rows)]
    widths = [max(display_width(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        spaces = [" " * (w - display_width(cell)) for cell, w in zip(line, widths, strict=True)]
        rest = [space + cell for space, cell in zip(spaces[1:], line[1:], strict=True)]
        lines.append("  ".join([line[0] + spaces[0], *rest]).rstrip())
    return "\n".join(lines)
