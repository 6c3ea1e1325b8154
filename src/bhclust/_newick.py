"""Newick text: a writer that loses nothing but the statistics, and a reader of any dialect.

Both run along the text once with a stack of their own, so depth does not matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, FloatArray
from bhclust.tree import Tree

# Names that every reader takes as they are; an underscore is not among them, since the standard
# reads it as a blank unless it is quoted.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9.+-]+")

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<mark>[(),:;])|(?P<quoted>'[^']*+(?:''[^']*+)*+')|(?P<label>[^\s()\[\]:;,']+)"
)
_NODE_NUMBER = re.compile(r"[0-9]{1,10}")
_BRACKET = re.compile(r"[\[\]]")

# How a comment of ours begins and what it may hold besides the number of the node.
_COMMENT: Final = "&id="
_REQUIRED: Final = ("height", "weight")
_OPTIONAL: Final = ("log_odds", "log_evidence", "log_marginal")
_UNNAMED: Final = ("leaf_names", "none")


def to_newick(
    tree: Tree,
    *,
    support: bool | npt.ArrayLike = True,
    branch_lengths: bool = True,
    comments: bool = True,
) -> str:
    """Return a tree as Newick text, one line for each root.

    Parameters
    ----------
    tree : Tree
        The tree. Leaves without names are written with their numbers.
    support : bool or array of shape (n_nodes,)
        Whether the label of an internal node is the probability that it is one cluster given
        that it is not split above. A tree without ``log_odds`` has no such labels. An array is
        written instead, such as the clade probabilities of `TreePosterior.support`.
    branch_lengths : bool
        Whether to write lengths: the height of the parent minus the height of the child.
    comments : bool
        Whether to write ``[&id=…,height=…,…]`` behind every node, so that `from_newick` gives
        back the same tree to the last bit, all but its statistics.

    Returns
    -------
    str
        The text, without a newline at its end.

    Examples
    --------
    >>> tree = Tree([3, 3, 4, 4, -1], n_leaves=3, leaf_names=("a", "b's", "c"),
    ...             height=[0, 0, 0, 0.5, 0.75])
    >>> to_newick(tree, comments=False)
    "(c:0.75,(a:0.5,'b''s':0.5):0.25);"
    >>> from_newick(to_newick(tree)).leaf_names
    ('a', "b's", 'c')
    """
    label = _labels(tree, support=support, branch_lengths=branch_lengths, comments=comments)
    children, first_child = tree.child_index.tolist(), tree.child_ptr.tolist()
    lines = []
    for root in tree.roots.tolist():
        parts: list[str] = []
        stack = [root]
        while stack:
            node = stack.pop()
            if node < 0:  # the complement of a node marks the end of its children
                parts.append(")" + label[~node])
                continue
            if parts and parts[-1] != "(":
                parts.append(",")
            if node < tree.n_leaves:
                parts.append(label[node])
            else:
                parts.append("(")
                stack.append(~node)
                stack.extend(children[first_child[node] : first_child[node + 1]][::-1])
        lines.append("".join(parts) + ";")
    return "\n".join(lines)


def _labels(
    tree: Tree, *, support: bool | npt.ArrayLike, branch_lengths: bool, comments: bool
) -> list[str]:
    """Return what is written behind each node: name or support, comment, length."""
    names = tree.leaf_names or tuple(map(str, range(tree.n_leaves)))
    label = [quoted_name(name) for name in names] + _support(tree, support)
    if comments:
        arrays = {name: getattr(tree, name) for name in (*_REQUIRED, *_OPTIONAL)}
        held = {name: values.tolist() for name, values in arrays.items() if values is not None}
        for node in range(tree.n_nodes):
            pairs = "".join(f",{name}={values[node]!r}" for name, values in held.items())
            label[node] += f"[{_COMMENT}{node}{pairs}]"
        if tree.leaf_names is None:
            for root in tree.roots.tolist():
                label[root] = f"{label[root][:-1]},{'='.join(_UNNAMED)}]"
    if branch_lengths:
        height = tree.height.tolist()
        for node, above in enumerate(tree.parent.tolist()):
            if above >= 0:
                label[node] += f":{height[above] - height[node]!r}"
    return label


def quoted_name(name: str) -> str:
    """Return a name as Newick and Nexus write it: as it is, or in quotes where it has to be."""
    return name if _PLAIN_NAME.fullmatch(name) else "'" + name.replace("'", "''") + "'"


def _support(tree: Tree, support: bool | npt.ArrayLike) -> list[str]:
    """Return the labels of the internal nodes."""
    if isinstance(support, (bool, np.bool_)):
        if not support or tree.log_odds is None:
            return [""] * (tree.n_nodes - tree.n_leaves)
        return [f"{_probability(odds):.6g}" for odds in tree.log_odds[tree.n_leaves :].tolist()]
    values = np.asarray(support, dtype=np.float64)
    if values.shape != (tree.n_nodes,):
        raise BhclustError(
            f"to_newick: support must be True, False or one number a node ({tree.n_nodes} nodes), "
            f"got an array of shape {values.shape}."
        )
    return [f"{value:.6g}" for value in values[tree.n_leaves :].tolist()]


def _probability(log_odds: float) -> float:
    smaller = math.exp(-abs(log_odds))  # never overflows
    return (1.0 if log_odds >= 0 else smaller) / (1 + smaller)


def from_newick(text: str) -> Tree:
    """Make a tree from Newick text of any origin; several trees make a forest.

    Text that `to_newick` wrote with comments gives the same tree again. In other text leaves are
    numbered as they come and internal nodes as their brackets close; the height of a node is
    the longest way down to a leaf, or the number of levels where there are no lengths. Missing
    and negative lengths count as 0, a node with a single child is dissolved, labels of internal
    nodes and comments are passed over, and underscores stay underscores.

    Parameters
    ----------
    text : str
        One or more trees, each ended by a semicolon.

    Returns
    -------
    Tree

    Raises
    ------
    BhclustError
        If the text is malformed; the message says where and how.

    Examples
    --------
    >>> tree = from_newick("((a:1,b:1):2,'c d':3,e:1);")
    >>> tree.parent.tolist(), tree.height.tolist(), tree.leaf_names
    ([4, 4, 5, 5, 5, -1], [0.0, 0.0, 0.0, 0.0, 1.0, 3.0], ('a', 'b', 'c d', 'e'))
    """
    if not isinstance(text, str):
        raise BhclustError(f"from_newick: text must be a string, got {type(text).__name__}.")
    nodes = _Parser(text).run()
    return _own_tree(nodes) or _foreign_tree(nodes)


@dataclass
class _Nodes:
    """Parsed nodes in the order in which they begin, so parents stand before their children."""

    parent: list[int] = field(default_factory=list)
    name: list[str | None] = field(default_factory=list)
    length: list[float | None] = field(default_factory=list)
    comment: list[str | None] = field(default_factory=list)
    #: internal nodes in the order in which they end
    closed: list[int] = field(default_factory=list)


class _Parser:
    """One pass along the text; `state` says what came last."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nodes = _Nodes()
        self.open: list[int] = []  # nodes whose bracket is open
        self.opened_at: list[int] = []
        self.current = -1  # the node that a label, length or comment belongs to
        self.state = "start"  # start, expect (a node), closed, label, colon, length
        self.handlers = {
            "(": self._open,
            ",": self._comma,
            ")": self._close,
            ":": self._colon,
            ";": self._end,
        }

    def run(self) -> _Nodes:
        for kind, token, position in self._tokens():
            if kind == "comment":
                # Before a node begins there is nothing that a comment could belong to.
                if self.state not in ("start", "expect") and token.startswith(_COMMENT):
                    self.nodes.comment[self.current] = token
            elif kind == "mark":
                self.handlers[token](position)
            else:
                self._label(kind, token, position)
        if self.state != "start":
            if self.open:
                self._fail("'(' is never closed", self.opened_at[-1])
            self._fail("the text ends without a final ';'", len(self.text))
        if not self.nodes.parent:
            raise BhclustError("from_newick: the text holds no tree.")
        return self.nodes

    def _tokens(self) -> Iterator[tuple[str, str, int]]:
        text, position = self.text, 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match:
                kind = str(match.lastgroup)
                if kind != "space":
                    yield kind, match.group(), position
                position = match.end()
            elif text[position] == "[":
                end = self._comment_end(position)
                yield "comment", text[position + 1 : end - 1], position
                position = end
            elif text[position] == "'":
                self._fail("a quoted label has no closing quote", position)
            else:
                self._fail("']' closes no comment", position)

    def _comment_end(self, position: int) -> int:
        depth = 0
        for match in _BRACKET.finditer(self.text, position):
            depth += 1 if match.group() == "[" else -1
            if depth == 0:
                break
        else:
            self._fail("the comment is never closed by ']'", position)
        return match.end()

    def _begin(self) -> None:
        self.current = len(self.nodes.parent)
        self.nodes.parent.append(self.open[-1] if self.open else -1)
        self.nodes.name.append(None)
        self.nodes.length.append(None)
        self.nodes.comment.append(None)

    def _open(self, position: int) -> None:
        if self.state not in ("start", "expect"):
            self._fail("'(' must follow '(' or ',', or begin a tree", position)
        self._begin()
        self.open.append(self.current)
        self.opened_at.append(position)
        self.state = "expect"

    def _label(self, kind: str, token: str, position: int) -> None:
        if self.state == "colon":
            self.nodes.length[self.current] = self._number(token, position)
            self.state = "length"
            return
        if self.state in ("start", "expect"):
            self._begin()
        elif self.state != "closed":
            self._fail("a label follows another; quote labels that hold blanks or quotes", position)
        quoted = kind == "quoted"
        self.nodes.name[self.current] = token[1:-1].replace("''", "'") if quoted else token
        self.state = "label"

    def _number(self, token: str, position: int) -> float:
        try:
            number = float(token)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self._fail(f"the branch length {token!r} is not a finite number", position)
        return number

    def _colon(self, position: int) -> None:
        if self.state in ("start", "expect"):
            self._begin()  # a leaf without a name
        elif self.state not in ("closed", "label"):
            self._fail("a node has a second ':'", position)
        self.state = "colon"

    def _finish(self, position: int) -> None:
        """End the node that runs up to a comma, bracket or semicolon."""
        if self.state == "colon":
            self._fail("a branch length is missing after ':'", position)
        if self.state == "expect":
            self._begin()  # a leaf without a name

    def _comma(self, position: int) -> None:
        if not self.open:
            self._fail("',' stands outside all brackets", position)
        self._finish(position)
        self.state = "expect"

    def _close(self, position: int) -> None:
        if not self.open:
            self._fail("')' closes no '('", position)
        self._finish(position)
        self.current = self.open.pop()
        self.opened_at.pop()
        self.nodes.closed.append(self.current)
        self.state = "closed"

    def _end(self, position: int) -> None:
        if self.open:
            self._fail("';' ends the tree, but '(' is not closed", position)
        if self.state == "start":
            self._fail("';' ends a tree that is empty", position)
        self._finish(position)
        self.state = "start"

    def _fail(self, what: str, position: int) -> NoReturn:
        line = self.text.count("\n", 0, position) + 1
        column = position - self.text.rfind("\n", 0, position)
        raise BhclustError(f"from_newick: {what} (line {line}, column {column}).")


def _own_tree(nodes: _Nodes) -> Tree | None:
    """Return the tree that `to_newick` wrote, or None if the comments are not all there."""
    if None in nodes.comment:
        return None
    held: list[dict[str, str]] = []
    for comment in nodes.comment:
        pairs = (pair.partition("=") for pair in str(comment)[1:].split(","))
        held.append({name: value for name, _, value in pairs})
    n_nodes, internal = len(held), set(nodes.closed)
    n_leaves = n_nodes - len(internal)
    number = [int(entry["id"]) if _NODE_NUMBER.fullmatch(entry["id"]) else -1 for entry in held]
    above = [number[over] if over >= 0 else -1 for over in nodes.parent]
    in_order = all(
        (own >= n_leaves) == (place in internal) and (over == -1 or over > own)
        for place, (own, over) in enumerate(zip(number, above, strict=True))
    )
    if sorted(number) != list(range(n_nodes)) or not in_order:
        return None
    arrays: dict[str, Any] = {}
    for name in (*_REQUIRED, *_OPTIONAL):
        if name in _REQUIRED or any(name in entry for entry in held):
            values = _floats([entry.get(name, "") for entry in held])
            if values is None:
                return None
            arrays[name] = np.empty(n_nodes)
            arrays[name][number] = values
    parent = np.empty(n_nodes, dtype=np.int32)
    parent[number] = above
    names = None
    if held[0].get(_UNNAMED[0]) != _UNNAMED[1]:
        by_number = sorted(zip(number, nodes.name, strict=True))[:n_leaves]
        names = tuple(name or "" for _, name in by_number)
    return Tree(parent, n_leaves, leaf_names=names, **arrays)


def _floats(texts: list[str]) -> list[float] | None:
    try:
        return [float(text) for text in texts]
    except ValueError:
        return None


def _foreign_tree(nodes: _Nodes) -> Tree:
    n_children = np.bincount([above + 1 for above in nodes.parent])[1:].tolist()
    n_children += [0] * (len(nodes.parent) - len(n_children))
    above, length = list(nodes.parent), [max(step or 0.0, 0.0) for step in nodes.length]
    for node, over in enumerate(nodes.parent):
        # A node with one child adds its length to the child's and leaves it its own parent.
        if over >= 0 and n_children[over] == 1:
            above[node] = above[over]
            length[node] = length[over] + length[node]
    leaves = [node for node, count in enumerate(n_children) if count == 0]
    order = leaves + [node for node in nodes.closed if n_children[node] > 1]
    number = {node: place for place, node in enumerate(order)}
    number[-1] = -1
    parent = np.array([number[above[node]] for node in order], dtype=np.int32)
    names = [nodes.name[leaf] for leaf in leaves]
    given: dict[str, Any] = {}
    if any(name is not None for name in names):
        given["leaf_names"] = tuple(name or "" for name in names)
    if any(nodes.length[node] is not None for node in range(len(above)) if nodes.parent[node] >= 0):
        given["height"] = _heights(parent, [length[node] for node in order])
    return Tree(parent, len(leaves), **given)


def _heights(parent: Any, length: list[float]) -> FloatArray:
    """Return the longest way from each node down to a leaf."""
    height = [0.0] * len(length)
    for node, above in enumerate(parent.tolist()):
        if above >= 0:
            height[above] = max(height[above], height[node] + length[node])
    return np.array(height)
