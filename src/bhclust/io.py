"""Trees in files and in the formats of other software: npz archives, linkage, Newick, Nexus, JSON.

Archives are NumPy's ``.npz`` with a JSON header inside, and are read without pickle, so a file
from a stranger can do no harm. All writing is atomic: a file is there in full or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import IO, Any, NoReturn

import numpy as np
import numpy.typing as npt

from bhclust._newick import from_newick, to_newick
from bhclust._nexus import to_nexus
from bhclust._treejson import from_json, to_json
from bhclust._validation import BhclustError, FileFormatError, FloatArray
from bhclust.tree import NODE_ARRAYS, Tree

__all__ = [
    "atomic_write_bytes",
    "atomic_write_text",
    "from_json",
    "from_linkage",
    "from_newick",
    "load",
    "read_archive",
    "save",
    "to_json",
    "to_linkage",
    "to_newick",
    "to_nexus",
    "tree_arrays",
    "tree_from_arrays",
    "tree_header",
    "write_archive",
]

Path = str | PathLike[str]

FORMAT = "bhclust"
FORMAT_VERSION = 1
_HEADER = "header"
_TREE = "tree"
_ZIP_MAGIC = b"PK\x03\x04"


# -- archives ------------------------------------------------------------------------------------


def save(path: Path, tree: Tree) -> None:
    """Write a tree to a file; `load` reads it back exactly.

    Parameters
    ----------
    path : str or path
        The file; it is replaced if it exists, and its name is used as it is.
    tree : Tree
        The tree.

    Examples
    --------
    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "tree.npz")
    ...     save(path, Tree([2, 2, -1], n_leaves=2, leaf_names=("a", "b")))
    ...     load(path).leaf_names
    ('a', 'b')
    """
    write_archive(path, {"kind": "tree", _TREE: tree_header(tree)}, tree_arrays(tree))


def load(path: Path) -> Tree:
    """Read the tree from a file written by `save`, or by an estimator with a tree.

    Examples
    --------
    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "tree.npz")
    ...     save(path, Tree([2, 2, -1], n_leaves=2))
    ...     load(path)
    <Tree: 2 leaves, 3 nodes, binary, height 1>
    """
    header, arrays = read_archive(path)
    if not isinstance(header.get(_TREE), dict):
        raise FileFormatError(f"{os.fspath(path)} is a bhclust file, but holds no tree.")
    try:
        return tree_from_arrays(header[_TREE], arrays)
    except BhclustError as error:
        raise FileFormatError(f"{os.fspath(path)} does not hold a valid tree: {error}") from None


def tree_header(tree: Tree) -> dict[str, Any]:
    """Return what a tree's JSON header holds: the number of leaves and their names.

    Examples
    --------
    >>> tree_header(Tree([2, 2, -1], n_leaves=2))
    {'n_leaves': 2, 'leaf_names': None}
    """
    names = tree.leaf_names
    return {"n_leaves": tree.n_leaves, "leaf_names": None if names is None else list(names)}


def tree_arrays(tree: Tree) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a tree under the names they have in an archive.

    Examples
    --------
    >>> sorted(tree_arrays(Tree([2, 2, -1], n_leaves=2)))
    ['tree.height', 'tree.parent', 'tree.weight']
    """
    arrays = {name: getattr(tree, name) for name in ("parent", *NODE_ARRAYS)}
    return {f"{_TREE}.{name}": array for name, array in arrays.items() if array is not None}


def tree_from_arrays(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Tree:
    """Make a tree from `tree_header` and `tree_arrays`; other arrays are passed over.

    Examples
    --------
    >>> tree = Tree([2, 2, -1], n_leaves=2)
    >>> tree_from_arrays(tree_header(tree), tree_arrays(tree)).parent.tolist()
    [2, 2, -1]
    """
    for name in ("n_leaves", "leaf_names"):
        if name not in header:
            raise FileFormatError(f"the header of the tree lacks {name!r}.")
    for name in ("parent", "height", "weight"):
        if f"{_TREE}.{name}" not in arrays:
            raise FileFormatError(f"the array '{_TREE}.{name}' is missing.")
    values: dict[str, Any] = {name: arrays.get(f"{_TREE}.{name}") for name in NODE_ARRAYS}
    parent: Any = arrays[f"{_TREE}.parent"]
    return Tree(parent, header["n_leaves"], leaf_names=header["leaf_names"], **values)


def write_archive(
    path: Path, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Write a JSON header and named arrays to one file, atomically.

    Parameters
    ----------
    path : str or path
        The file, used as it is (no suffix is added).
    header : mapping
        Anything JSON can hold. ``"format"`` and ``"version"`` are added.
    arrays : mapping of str to array
        Arrays of any type but object.

    Examples
    --------
    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "some.npz")
    ...     write_archive(path, {"kind": "example"}, {"x": np.arange(3)})
    ...     header, arrays = read_archive(path)
    >>> header["kind"], arrays["x"].tolist()
    ('example', [0, 1, 2])
    """
    reserved = [name for name in ("format", "version") if name in header]
    if reserved or _HEADER in arrays:
        taken = reserved[0] if reserved else _HEADER
        raise BhclustError(f"write_archive: the name {taken!r} is taken: choose another.")
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise BhclustError(
                f"write_archive: array {name!r} holds Python objects, which only pickle could "
                "store: put it in the header, or convert it to numbers."
            )
    full = {"format": FORMAT, "version": FORMAT_VERSION, **header}
    encoded = np.frombuffer(json.dumps(full).encode("ascii"), dtype=np.uint8)
    # np.savez would do, but for the names that its own parameters take ("file").
    with _atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {_HEADER: encoded, **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return the header and the arrays of a file written by `write_archive`.

    Raises
    ------
    FileFormatError
        If the file is truncated, damaged, not one of ours, or of a newer format.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "some.npz")
    ...     write_archive(path, {}, {"x": np.zeros(2)})
    ...     read_archive(path)[0]
    {'format': 'bhclust', 'version': 1}
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        _raise_os_error("read", name, error)
    if not content.startswith(_ZIP_MAGIC):
        raise FileFormatError(f"{name} is not a bhclust file: it is not an npz archive.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.namelist()
            if f"{_HEADER}.npy" not in members:
                raise FileFormatError(f"{name} is not a bhclust file: it has no header.")
            header = json.loads(_read_member(archive, f"{_HEADER}.npy").tobytes())
            _check_header(header, name)
            arrays = {key.removesuffix(".npy"): _read_member(archive, key) for key in members}
            del arrays[_HEADER]
    except FileFormatError:
        raise
    # The decoders of zip, npy and JSON raise a dozen kinds of error; each of them means this.
    except Exception as error:
        raise FileFormatError(
            f"{name} is truncated or damaged ({type(error).__name__}): restore it from a copy."
        ) from error
    return header, arrays


def _read_member(archive: zipfile.ZipFile, key: str) -> npt.NDArray[Any]:
    # Reading a member to its end checks its checksum, which np.load does not always reach.
    array: npt.NDArray[Any] = np.lib.format.read_array(
        io.BytesIO(archive.read(key)), allow_pickle=False
    )
    return array


def _check_header(header: Any, name: str) -> None:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FileFormatError(f"{name} is not a bhclust file: its header is not ours.")
    version = header.get("version")
    if not isinstance(version, int) or version < 1:
        raise FileFormatError(f"{name} has no valid format version: it gives {version!r}.")
    if version > FORMAT_VERSION:
        raise FileFormatError(
            f"{name} has format version {version}, and this release reads up to "
            f"{FORMAT_VERSION}: upgrade bhclust to read it."
        )


def atomic_write_text(path: Path, text: str) -> None:
    """Write UTF-8 text to a file that is there in full or not at all.

    Examples
    --------
    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "labels.csv")
    ...     atomic_write_text(path, "leaf,label\\n")
    ...     os.listdir(folder)
    ['labels.csv']
    """
    atomic_write_bytes(path, text.encode("utf-8"))


def atomic_write_bytes(path: Path, content: bytes) -> None:
    """Write bytes to a file that is there in full or not at all."""
    with _atomic_file(path) as file:
        file.write(content)


@contextlib.contextmanager
def _atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file beside ``path`` that takes its name when all is written."""
    name = os.fspath(path)
    target = os.path.realpath(name)  # a link stays a link: what it points to is replaced
    temporary = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.part")
    try:
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, "it is a folder, give the name of a file")
        if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
            # A pipe or a device cannot be replaced, only written to.
            with open(target, "wb") as file:
                yield file
            return
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            _raise_os_error("write", name, error)
        raise


def _raise_os_error(verb: str, name: str, error: OSError) -> NoReturn:
    reason = error.strerror or str(error)
    if verb == "write" and error.errno == errno.ENOENT:
        reason = "its folder does not exist, create it first"
    # OSError picks the subclass (FileNotFoundError, PermissionError, …) from the number.
    raise OSError(error.errno or errno.EIO, f"Cannot {verb} {name}: {reason}.") from error


# -- SciPy linkage -------------------------------------------------------------------------------


def to_linkage(tree: Tree) -> FloatArray:
    """Return the linkage matrix of SciPy: one row ``(a, b, height, n_leaves)`` a merge.

    Rows are sorted by height, then by node number, so internal nodes get new numbers where the
    heights of a tree do not rise with its node numbers. A node with more than two children
    becomes several merges at one height; ``from_linkage(…, collapse_equal_heights=True)`` undoes
    it.

    Parameters
    ----------
    tree : Tree
        A tree with one root.

    Returns
    -------
    array of float64, shape (n_leaves − 1, 4)
        Valid and monotone for `scipy.cluster.hierarchy`.

    Examples
    --------
    >>> to_linkage(Tree([3, 3, 4, 4, -1], n_leaves=3, height=[0, 0, 0, 0.5, 0.75]))
    array([[0.  , 1.  , 0.5 , 2.  ],
           [2.  , 3.  , 0.75, 3.  ]])
    """
    if len(tree.roots) > 1:
        raise BhclustError(
            f"to_linkage: a linkage matrix holds one tree, and this forest has {len(tree.roots)} "
            "roots: convert tree.subtree(root) for each of tree.roots, or join the roots under "
            "one node."
        )
    n_leaves = tree.n_leaves
    internal = np.arange(n_leaves, tree.n_nodes)
    by_height = internal[np.lexsort((internal, tree.height[internal]))]
    children, first_child = tree.child_index.tolist(), tree.child_ptr.tolist()
    size, height = tree.size.tolist(), tree.height.tolist()
    number = list(range(tree.n_nodes))
    rows = []
    for node in by_height.tolist():
        first, *others = children[first_child[node] : first_child[node + 1]]
        joined, n_joined = number[first], size[first]
        for child in others:
            n_joined += size[child]
            other = number[child]
            rows.append((min(joined, other), max(joined, other), height[node], n_joined))
            joined = n_leaves + len(rows) - 1
        number[node] = joined
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def from_linkage(
    Z: npt.ArrayLike,
    leaf_names: Sequence[str] | None = None,
    *,
    collapse_equal_heights: bool = False,
) -> Tree:
    """Make a tree from a linkage matrix of SciPy.

    Parameters
    ----------
    Z : array, shape (n_leaves − 1, 4)
        A valid linkage matrix whose heights do not fall. Row i becomes node ``n_leaves + i``.
    leaf_names : sequence of str, optional
        One name a leaf.
    collapse_equal_heights : bool
        Whether an internal node at the very height of its parent is dissolved into it. This
        gives back the rose tree that `to_linkage` wrote.

    Returns
    -------
    Tree

    Examples
    --------
    >>> from scipy.cluster.hierarchy import linkage
    >>> from_linkage(linkage([[0.0], [1.0], [5.0]], "average")).height.tolist()
    [0.0, 0.0, 0.0, 1.0, 4.5]
    """
    merges = _check_linkage(Z)
    n_leaves = len(merges) + 1
    n_nodes = 2 * n_leaves - 1
    pairs = merges[:, :2].astype(np.intp)
    parent = np.full(n_nodes, -1, dtype=np.int32)
    parent[pairs[:, 0]] = parent[pairs[:, 1]] = np.arange(n_leaves, n_nodes)
    height = np.concatenate([np.zeros(n_leaves), merges[:, 2]])
    if collapse_equal_heights:
        parent, height = _collapse(parent, height, n_leaves)
    names = None if leaf_names is None else tuple(leaf_names)
    return Tree(parent, n_leaves, height=height, leaf_names=names)


def _collapse(
    parent: npt.NDArray[np.int32], height: FloatArray, n_leaves: int
) -> tuple[npt.NDArray[np.int32], FloatArray]:
    """Dissolve internal nodes at the height of their parents."""
    nodes = np.arange(len(parent))
    # Index −1 looks at the last node, which is the root: it must not dissolve into itself.
    dissolved = (nodes >= n_leaves) & (parent >= 0) & (height[parent] == height)
    kept = np.flatnonzero(~dissolved)
    number = np.full(len(parent) + 1, -1, dtype=np.int32)  # entry −1 stays −1 for the root
    number[kept] = np.arange(len(kept))
    for node in np.flatnonzero(dissolved)[::-1].tolist():  # from the root down
        number[node] = number[parent[node]]
    return number[parent[kept]], height[kept]


def _check_linkage(Z: npt.ArrayLike) -> FloatArray:
    owner = "from_linkage: Z"
    try:
        merges = np.asarray(Z, dtype=np.float64)
    except (TypeError, ValueError):
        raise BhclustError(f"{owner} must be an array of numbers.") from None
    if merges.ndim != 2 or merges.shape[1] != 4:
        raise BhclustError(f"{owner} must have the shape (n - 1, 4), got {merges.shape}.")
    n_leaves = len(merges) + 1
    rows = np.arange(len(merges))
    pairs = merges[:, :2]
    whole = (pairs == np.floor(pairs)) & (pairs >= 0) & (pairs < (n_leaves + rows)[:, None])
    bad = np.flatnonzero(~whole.all(axis=1))
    if bad.size:
        raise BhclustError(
            f"{owner} must join leaves or earlier merges in its first two columns, but row "
            f"{bad[0]} joins {pairs[bad[0], 0]:g} and {pairs[bad[0], 1]:g}."
        )
    times = np.bincount(pairs.astype(np.intp).ravel(), minlength=2 * n_leaves - 1)
    if (times > 1).any():
        twice = int(np.flatnonzero(times > 1)[0])
        raise BhclustError(f"{owner} must join each cluster once, but {twice} is joined again.")
    height = merges[:, 2]
    bad = np.flatnonzero(~(np.isfinite(height) & (height >= 0)))
    if bad.size:
        raise BhclustError(
            f"{owner} must have finite heights, not negative, in its third column, but row "
            f"{bad[0]} has {height[bad[0]]:g}."
        )
    above = np.concatenate([np.zeros(n_leaves), height])
    bad = np.flatnonzero((above[pairs.astype(np.intp)] > height[:, None]).any(axis=1))
    if bad.size:
        raise BhclustError(
            f"{owner} must not have a merge below the merges it joins, but row {bad[0]} does "
            "(centroid and median linkage can): use another method, or pass Z with "
            "np.maximum.accumulate(Z[:, 2]) as its third column."
        )
    return merges
