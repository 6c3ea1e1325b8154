"""Trees as JSON: flat lists with one entry a node, so that depth does not matter."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import numpy as np

from bhclust._validation import FileFormatError
from bhclust.tree import NODE_ARRAYS, Tree

TREE_FORMAT: Final = "bhclust-tree"
TREE_VERSION: Final = 1

# JSON has no word for infinity.
_INFINITE: Final = {math.inf: "inf", -math.inf: "-inf"}


def to_json(tree: Tree, *, stats: bool = False, indent: int | None = None) -> str:
    """Return a tree as JSON text; `from_json` gives the same tree to the last bit.

    Parameters
    ----------
    tree : Tree
        Any tree or forest.
    stats : bool
        Whether to write the model's statistics of each node as well.
    indent : int, optional
        Spaces of indentation; one line by default.

    Returns
    -------
    str
        An object with the keys ``format`` ("bhclust-tree"), ``version`` (1), ``n_leaves``,
        ``leaf_names`` (or null), and one list with an entry a node for each of ``parent`` (−1 at a
        root; leaves come first), ``size``, ``height``, ``weight`` and, where the tree has them,
        ``log_odds``, ``probability`` (of being one cluster given that it is not split above),
        ``log_evidence``, ``log_marginal``, ``stats`` (a list a node). Infinite numbers are the
        strings ``"inf"`` and ``"-inf"``. ``size`` and ``probability`` follow from the others and
        are there for readers in other languages.

    Examples
    --------
    >>> tree = Tree([2, 2, -1], n_leaves=2, leaf_names=("a", "b"), height=[0, 0, 0.5])
    >>> print(to_json(tree))
    {"format": "bhclust-tree", "version": 1, "n_leaves": 2, "leaf_names": ["a", "b"], \
"parent": [2, 2, -1], "size": [1, 1, 2], "height": [0.0, 0.0, 0.5], "weight": [1.0, 1.0, 2.0]}
    >>> from_json(to_json(tree)).leaf_names
    ('a', 'b')
    """
    content: dict[str, Any] = {
        "format": TREE_FORMAT,
        "version": TREE_VERSION,
        "n_leaves": tree.n_leaves,
        "leaf_names": None if tree.leaf_names is None else list(tree.leaf_names),
        "parent": tree.parent.tolist(),
        "size": tree.size.tolist(),
        "height": tree.height.tolist(),
        "weight": tree.weight.tolist(),
    }
    if tree.log_odds is not None:
        content["log_odds"] = _plain(tree.log_odds.tolist())
        content["probability"] = np.exp(-np.logaddexp(0.0, -tree.log_odds)).tolist()
    for name in ("log_evidence", "log_marginal"):
        values = getattr(tree, name)
        if values is not None:
            content[name] = _plain(values.tolist())
    if stats and tree.stats is not None:
        content["stats"] = [_plain(row) for row in tree.stats.tolist()]
    return json.dumps(content, indent=indent, allow_nan=False)


def from_json(text: str) -> Tree:
    """Make a tree from the text of `to_json`.

    Raises
    ------
    FileFormatError
        If the text is not JSON, not a tree of ours, of a newer version, or not a valid tree.

    Examples
    --------
    >>> from_json('{"format": "bhclust-tree", "version": 1, "n_leaves": 2, "parent": [2, 2, -1]}')
    <Tree: 2 leaves, 3 nodes, binary, height 1>
    """
    try:
        content = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise FileFormatError(f"from_json: the text is not JSON ({error}).") from None
    if not isinstance(content, dict) or content.get("format") != TREE_FORMAT:
        raise FileFormatError(f"from_json: the text is no tree: its format is not {TREE_FORMAT!r}.")
    version = content.get("version")
    if not isinstance(version, int) or version > TREE_VERSION:
        raise FileFormatError(
            f"from_json: the tree has format version {version!r}, and this release reads up to "
            f"{TREE_VERSION}: upgrade bhclust to read it."
        )
    for name in ("parent", "n_leaves"):
        if name not in content:
            raise FileFormatError(f"from_json: the tree lacks {name!r}.")
    try:
        arrays = {name: _numbers(content.get(name)) for name in NODE_ARRAYS}
        parent: Any = np.asarray(content["parent"])
        return Tree(parent, content["n_leaves"], leaf_names=content.get("leaf_names"), **arrays)
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"from_json: the text is no valid tree: {error}") from None


def _plain(values: list[float]) -> list[float | str]:
    return [_INFINITE.get(value, value) for value in values]


def _numbers(values: Any) -> Any:
    """Return a list of numbers as an array; NumPy reads the strings for infinity itself."""
    return None if values is None else np.array(values, dtype=np.float64)
