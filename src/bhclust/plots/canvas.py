"""What all plots share: axes to draw on, the tree of an estimator, room for text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, FloatArray, IntArray, optional_import
from bhclust.layout import is_separation_height
from bhclust.posterior import cut
from bhclust.tree import Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FONT_SIZE = 8.0
SMALLEST_FONT = 5.0

# A line of text needs so many font sizes; a letter is so many font sizes wide on average.
LINE = 1.25
LETTER = 0.62

# Names are cut to so many letters.
LONGEST_NAME = 28


def matplotlib_part(module: str, owner: str) -> Any:
    """Import a module of matplotlib, or say how to install it."""
    return optional_import(f"matplotlib.{module}", extra="plot", needed_for=owner)


def get_axes(ax: Any, size: tuple[float, float], owner: str) -> Axes:
    """Return the axes that were given, or new ones on a figure of this size in inches."""
    pyplot = matplotlib_part("pyplot", owner)
    if ax is None:
        _, made = pyplot.subplots(figsize=size, layout="constrained")
        return cast("Axes", made)
    axes = matplotlib_part("axes", owner)
    if not isinstance(ax, axes.Axes):
        raise BhclustError(
            f"{owner}: ax must be a matplotlib Axes, such as the second result of "
            f"matplotlib.pyplot.subplots(), got {type(ax).__name__}."
        )
    return cast("Axes", ax)


class Subject(NamedTuple):
    """A tree to draw, the cluster of each leaf (None: not known) and the names of the leaves."""

    tree: Tree
    labels: IntArray | None
    names: tuple[str, ...]


def subject(drawn: Any, labels: Any, names: Sequence[str] | None, owner: str) -> Subject:
    """Take a tree, or an estimator apart into its tree, labels and names."""
    tree = get_tree(drawn, owner)
    if labels is not None:
        found: IntArray | None = _numbered(labels, tree.n_leaves, owner)
    elif isinstance(drawn, Tree):
        # Log odds that are not probabilities come from a tree with ages, which has cuts of its own.
        found = cut(tree) if is_separation_height(tree) else None
    else:
        found = leaf_labels(drawn)
    if names is None:
        rows = getattr(drawn, "leaf_rows_", range(tree.n_leaves))
        names = tree.leaf_names or tuple(str(row) for row in rows)
    elif len(names) != tree.n_leaves:
        raise BhclustError(
            f"{owner}: names must hold one name a leaf ({tree.n_leaves}), got {len(names)}."
        )
    return Subject(tree, found, tuple(str(name) for name in names))


def get_tree(drawn: Any, owner: str) -> Tree:
    """Return a tree, or the tree of a fitted estimator."""
    tree = drawn if isinstance(drawn, Tree) else getattr(drawn, "tree_", None)
    if not isinstance(tree, Tree):
        raise BhclustError(
            f"{owner} draws a Tree or a fitted estimator of bhclust, got "
            f"{type(drawn).__name__}: call fit first."
        )
    return tree


def check_estimator(estimator: Any, owner: str, needs: Sequence[str]) -> None:
    """Raise unless an estimator is fitted and has what a plot needs."""
    if not all(hasattr(estimator, name) for name in ("tree_", "labels_", *needs)):
        raise BhclustError(
            f"{owner} needs a fitted estimator of bhclust, got {type(estimator).__name__}: call "
            "fit first."
        )


def leaf_labels(estimator: Any) -> IntArray:
    """Return the cluster of each leaf of an estimator's tree."""
    labels = np.asarray(estimator.labels_)
    return np.asarray(labels[getattr(estimator, "leaf_rows_", slice(None))])


def _numbered(labels: Any, n_leaves: int, owner: str) -> IntArray:
    """Number the labels 0, 1, … if they are not numbers already."""
    given = np.asarray(labels)
    if given.shape != (n_leaves,):
        raise BhclustError(
            f"{owner}: labels must hold one label a leaf ({n_leaves}), got shape {given.shape}."
        )
    if given.dtype.kind in "iu" and given.min() >= 0:
        return given.astype(np.intp)
    return np.asarray(np.unique(given, return_inverse=True)[1].reshape(-1), dtype=np.intp)


def short(name: str) -> str:
    """Cut a long name, and keep a line break from making two lines of it."""
    line = " ".join(name.split())
    return line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + "…"


def font_for(pixels: float, n_lines: int, dpi: float, largest: float = FONT_SIZE) -> float | None:
    """Return the font size with which so many lines fit into so many pixels, None if none does."""
    size = pixels / max(n_lines, 1) / LINE * 72 / dpi
    return None if size < SMALLEST_FONT else min(size, largest)


# Where text may stand at a point: sideways in widths of the text, and above or below it.
_SPOTS = ((0.0, 1), (0.5, 1), (-0.5, 1), (0.0, -1), (0.5, -1), (-0.5, -1))

# Lines are kept free at points so many pixels apart.
_STEP = 3.0


class Texts:
    """Text at points of a drawing: only where it covers no other text and no line.

    The limits of the axes must be set before. Sizes of text are estimates on the safe side.

    Parameters
    ----------
    ax : Axes
    lines : sequence of array, each of shape (n, 2)
        Chains of points in the coordinates of the axes that are to be kept free.
    most : int
        So many texts and no more.
    """

    def __init__(
        self, ax: Axes, lines: Sequence[FloatArray] = (), *, font_size: float = 7.0, most: int = 40
    ) -> None:
        self._ax, self._font_size, self._left = ax, font_size, most
        self._pixel = float(ax.figure.dpi) / 72
        self._boxes: list[tuple[float, float, float, float]] = []
        chains = [_dense_points(ax.transData.transform(line)) for line in lines]
        self._ink = np.concatenate(chains) if chains else np.empty((0, 2))

    def put(
        self,
        x: float,
        y: float,
        text: str,
        *,
        colour: str,
        side: float = 0.0,
        over_lines: bool = False,
    ) -> bool:
        """Put text at a point if there is room, and return whether there was.

        ``side`` is where it stands best: −1 left of the point, 1 right of it, 0 above it. With
        ``over_lines`` text that finds no free spot may stand on lines.
        """
        if self._left <= 0:
            return False
        at = self._ax.transData.transform((x, y))
        width = LETTER * self._font_size * self._pixel * len(text) + 2
        height = LINE * self._font_size * self._pixel
        best_first = sorted(_SPOTS, key=lambda spot: spot[0] * side <= 0 and side != 0)
        spots = [_box(at, width, height, *spot, gap=2 * self._pixel) for spot in best_first]
        spots = [box for box in spots if self._is_free(box)]
        clean = [box for box in spots if not self._covers_ink(box)]
        if not clean and not (over_lines and spots):
            return False
        box = (clean or spots)[0]
        self._boxes.append(box)
        self._left -= 1
        place = self._ax.transData.inverted().transform(((box[0] + box[2]) / 2, box[1]))
        self._ax.text(
            float(place[0]),
            float(place[1]),
            text,
            parse_math=False,
            fontsize=self._font_size,
            color=colour,
            ha="center",
            va="bottom",
            zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.2},
        )
        return True

    def _is_free(self, box: tuple[float, float, float, float]) -> bool:
        frame = self._ax.get_window_extent()
        inside = box[0] >= frame.x0 and box[2] <= frame.x1 and box[1] >= frame.y0
        if not inside or box[3] > frame.y1 + 1:
            return False
        return not any(_overlap(box, other) for other in self._boxes)

    def _covers_ink(self, box: tuple[float, float, float, float]) -> bool:
        x, y = self._ink[:, 0], self._ink[:, 1]
        return bool(((x > box[0]) & (x < box[2]) & (y > box[1]) & (y < box[3])).any())


def _box(
    at: npt.NDArray[Any], width: float, height: float, sideways: float, up: int, *, gap: float
) -> tuple[float, float, float, float]:
    centre = float(at[0]) + sideways * (width + 2 * gap)
    bottom = float(at[1]) + gap if up > 0 else float(at[1]) - gap - height
    return (centre - width / 2, bottom, centre + width / 2, bottom + height)


def _dense_points(chain: npt.NDArray[Any]) -> FloatArray:
    """Return points on a chain of lines, no further apart than a few pixels."""
    pieces = []
    for start, end in itertools.pairwise(chain):
        n_steps = max(1, int(np.hypot(*(end - start)) / _STEP))
        share = np.linspace(0, 1, n_steps + 1)[:, None]
        pieces.append(start + share * (end - start))
    return np.concatenate(pieces)


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def bare(ax: Axes, keep: Sequence[str] = ()) -> None:
    """Take the frame of axes away, but for some sides."""
    for side in ("left", "right", "top", "bottom"):
        ax.spines[side].set_visible(side in keep)


def settle(ax: Axes) -> None:
    """Let the figure find its arrangement, so that pixels can be measured."""
    whole: Any = ax.figure.figure  # the axes may be on a part of a figure
    whole.draw_without_rendering()


def ranges(values: npt.NDArray[Any], margin: float = 0.08) -> tuple[float, float]:
    """Return limits a little wider than the values."""
    seen = values[np.isfinite(values)]
    if not len(seen):
        return -1.0, 1.0
    low, high = float(seen.min()), float(seen.max())
    pad = margin * (high - low) or 0.5 * abs(high) or 1.0
    return low - pad, high + pad


def band(mean: FloatArray, deviation: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return two standard deviations below and above a mean."""
    return mean - 2 * deviation, mean + 2 * deviation
