"""Dendrograms and radial trees: line collections, drawn without recursion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bhclust._validation import BhclustError, FloatArray, IntArray, check_choice, check_count
from bhclust.layout import (
    MIXED,
    REJECTED,
    SCALES,
    Skeleton,
    cluster_of_nodes,
    colour_of,
    drawn_heights,
    is_separation_height,
    skeleton,
)
from bhclust.plots.canvas import (
    FONT_SIZE,
    LETTER,
    Subject,
    Texts,
    bare,
    font_for,
    get_axes,
    matplotlib_part,
    settle,
    short,
    subject,
)
from bhclust.tree import Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Orientation = Literal["top", "bottom", "left", "right"]
Scale = Literal["auto", "height", "log_odds", "rank"]

_ORIENTATIONS = ("top", "bottom", "left", "right")

# Inches a tip gets in a figure of our own, and how long the figure may become.
_TIP = 0.15
_LONGEST = 15.0

# Half the width of the triangle of a collapsed node, in tips.
_HALF = 0.34

# Log odds are written on so many joins at most.
_MOST_LABELS = 40

# Joins that are tried for a label, and pieces of line that labels leave free, the highest first.
_MOST_TRIED = 300
_MOST_PIECES = 900

# A tree that is not higher than this is flat: matplotlib has no axis for it.
_LOWEST_HEIGHT = 1e-200

# Steps of an arc over the whole circle.
_CIRCLE = 180


class Drawing(NamedTuple):
    """A tree ready to be drawn; arrays have one entry a drawn node.

    ``cluster`` is −1 where a node holds several clusters; ``first`` and ``last`` are the places
    of the outermost children of a join.
    """

    tree: Tree
    drawn: Skeleton
    height: FloatArray
    cluster: IntArray
    rejected: npt.NDArray[np.bool_]
    first: FloatArray
    last: FloatArray

    @property
    def highest(self) -> float:
        """Height of the highest node; 1 if all are as good as zero."""
        highest = float(self.height.max())
        return highest if highest > _LOWEST_HEIGHT else 1.0


class Lines(NamedTuple):
    """Pieces of line in places and heights, shape (n, 2, 2), and the cluster of each."""

    ends: FloatArray
    cluster: IntArray
    rejected: npt.NDArray[np.bool_]


def dendrogram(
    tree: Any,
    ax: Axes | None = None,
    *,
    orientation: Orientation = "top",
    height: Scale = "auto",
    top: int | None = None,
    labels: Any = None,
    names: Sequence[str] | None = None,
    node_labels: Mapping[int, str] | None = None,
    log_odds: bool = True,
) -> Axes:
    """Draw a tree, coloured by cluster, joins that the model rejects dashed and red.

    A join is rejected if its log odds are below zero: its leaves are more probably several
    clusters than one. As in Figure 5 of the BHC paper the log odds stand beside it, as far as
    there is room.

    Parameters
    ----------
    tree : Tree or fitted estimator
        Binary trees, rose trees, forests and trees with ages.
    ax : Axes, optional
        Where to draw; by default a new figure.
    orientation : {"top", "bottom", "left", "right"}
        The side on which the root is.
    height : {"auto", "height", "log_odds", "rank"}
        How high a join is drawn: its height in the tree; ``sqrt(1 + highest - log odds)`` and not
        below its children; or the rank of its height. "auto" takes the log odds for BHC and rose
        trees, whose heights are probabilities that crowd near 0 and 1, and the height for others.
    top : int, optional
        Open the highest joins only, until there are so many branches; what is below the others is
        drawn as a triangle with its number of leaves.
    labels : array of shape (n_leaves,), optional
        Colour by these labels in place of the clusters, such as known classes.
    names : sequence of str, optional
        Names of the leaves; by default those of the tree, or row numbers. They are shown if there
        is room.
    node_labels : mapping of int to str, optional
        Words for nodes, such as `bhclust.explanations.label_nodes` finds.
    log_odds : bool
        Whether to write the log odds of rejected joins.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from bhclust import BayesianHierarchicalClustering, plots
    >>> from bhclust.datasets import make_blocks
    >>> fitted = BayesianHierarchicalClustering().fit(make_blocks(random_state=0).X)
    >>> ax = plots.dendrogram(fitted, orientation="left")
    """
    owner = "plots.dendrogram"
    check_choice(orientation, _ORIENTATIONS, name="orientation", owner=owner)
    thing = subject(tree, labels, names, owner)
    drawing = prepare(thing, height, top, owner)
    words = _checked_words(node_labels, thing.tree, owner)
    upright = orientation in ("top", "bottom")
    length = float(np.clip(_TIP * drawing.drawn.n_tips, 5.0, _LONGEST))
    ax = get_axes(ax, (length, 5.0) if upright else (6.5, length), owner)
    lines = draw_tree(ax, drawing, orientation, owner)
    _height_axis(ax, drawing, orientation, height)
    _tip_names(ax, drawing, thing.names, words, orientation)
    settle(ax)
    texts = Texts(ax, lines, most=_MOST_LABELS + len(words))
    to_root = {"left": -1.0, "right": 1.0}.get(orientation, 0.0)
    point = _upright if upright else _lying
    _write(texts, drawing, words, log_odds, point, to_root)
    return ax


def radial(
    tree: Any,
    ax: Axes | None = None,
    *,
    height: Scale = "auto",
    top: int | None = None,
    labels: Any = None,
    names: Sequence[str] | None = None,
    node_labels: Mapping[int, str] | None = None,
    log_odds: bool = False,
    arc: float = 350.0,
) -> Axes:
    """Draw a tree in a circle: the root in the middle, the leaves around it.

    Parameters
    ----------
    tree, ax, height, top, labels, names, node_labels, log_odds
        As in `dendrogram`.
    arc : float
        Degrees of the circle that the leaves take, above 0 and up to 360.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from bhclust import BayesianRoseTree, plots
    >>> from bhclust.datasets import make_blocks
    >>> fitted = BayesianRoseTree().fit(make_blocks(random_state=0).X)
    >>> ax = plots.radial(fitted, top=12)
    """
    owner = "plots.radial"
    if not 0 < arc <= 360:
        raise BhclustError(f"{owner}: arc must be above 0 and at most 360, got {arc!r}.")
    thing = subject(tree, labels, names, owner)
    drawing = prepare(thing, height, top, owner)
    words = _checked_words(node_labels, thing.tree, owner)
    ax = get_axes(ax, (7.0, 7.0), owner)
    bend = _Bend(drawing, np.deg2rad(arc))
    lines = line_pieces(drawing)
    legs = len(drawing.drawn.nodes) - int((drawing.drawn.parent < 0).sum())
    pieces: list[FloatArray] = [*bend.points(lines.ends[:legs]), *bend.arcs(lines.ends[legs:])]
    triangles = list(bend.points(_triangles(drawing)))
    _add_lines(ax, pieces, lines, drawing.drawn.n_tips, owner)
    _add_triangles(ax, triangles, drawing, owner)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    bare(ax)
    ax.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    settle(ax)
    around = _names_around(ax, drawing, bend, thing.names, words)
    seen = [pieces[k] for k in _highest(lines)] + triangles + around
    texts = Texts(ax, seen, most=_MOST_LABELS + len(words))
    _write(texts, drawing, words, log_odds, bend.point, 0.0)
    return ax


def prepare(thing: Subject, scale: str, top: int | None, owner: str) -> Drawing:
    """Find out where everything goes."""
    check_choice(scale, SCALES, name="height", owner=owner)
    if top is not None:
        top = check_count(top, name="top", owner=owner, lowest=2)
    tree, labels = thing.tree, thing.labels
    drawn = skeleton(tree, top)
    n_drawn = len(drawn.nodes)
    whole = np.zeros(tree.n_leaves, dtype=np.intp) if labels is None else labels
    cluster = cluster_of_nodes(tree, whole)[drawn.nodes]
    rejected = np.zeros(n_drawn, dtype=np.bool_)
    if tree.log_odds is not None:
        rejected = (tree.log_odds[drawn.nodes] < 0) & ~drawn.is_tip
    first, last = np.full(n_drawn, np.inf), np.full(n_drawn, -np.inf)
    below = np.flatnonzero(drawn.parent >= 0)
    np.minimum.at(first, drawn.parent[below], drawn.place[below])
    np.maximum.at(last, drawn.parent[below], drawn.place[below])
    height = drawn_heights(tree, drawn, scale, labels)
    return Drawing(tree, drawn, height, cluster, rejected, first, last)


def line_pieces(drawing: Drawing) -> Lines:
    """Return a leg from every node to the height of its parent, then the bar of every join."""
    drawn, height = drawing.drawn, drawing.height
    below = np.flatnonzero(drawn.parent >= 0)
    above = drawn.parent[below]
    joins = np.flatnonzero(~drawn.is_tip)
    legs = np.empty((len(below), 2, 2))
    legs[:, :, 0] = drawn.place[below, None]
    legs[:, 0, 1], legs[:, 1, 1] = height[below], height[above]
    bars = np.empty((len(joins), 2, 2))
    bars[:, 0, 0], bars[:, 1, 0] = drawing.first[joins], drawing.last[joins]
    bars[:, :, 1] = height[joins, None]
    # A leg below a join of several clusters has the colour of the cluster that it leads to.
    of_leg = np.where(drawing.cluster[above] >= 0, drawing.cluster[above], drawing.cluster[below])
    cluster = np.concatenate([of_leg, drawing.cluster[joins]])
    rejected = np.concatenate([drawing.rejected[above], drawing.rejected[joins]])
    return Lines(np.concatenate([legs, bars]), cluster, rejected)


def draw_tree(ax: Axes, drawing: Drawing, orientation: str, owner: str) -> list[FloatArray]:
    """Draw the lines and triangles of a tree and set the limits of the axes.

    Return the lines that text should leave free.
    """
    lines = line_pieces(drawing)
    triangles = _triangles(drawing)
    ends = lines.ends
    if orientation in ("left", "right"):
        ends, triangles = ends[:, :, ::-1], triangles[:, :, ::-1]
    _add_lines(ax, list(ends), lines, drawing.drawn.n_tips, owner)
    _add_triangles(ax, list(triangles), drawing, owner)
    highest = drawing.highest
    along, up = (-0.6, drawing.drawn.n_tips - 0.4), (0.0, 1.06 * highest)
    if orientation == "top":
        ax.set(xlim=along, ylim=up)
    elif orientation == "bottom":
        ax.set(xlim=along, ylim=up[::-1])
    else:  # the first tip at the top, as in a table
        ax.set(ylim=along[::-1], xlim=up[::-1] if orientation == "left" else up)
    return [*ends[_highest(lines)], *triangles]


def _highest(lines: Lines) -> IntArray:
    """Return the highest pieces of line, those among which text is written."""
    return np.argsort(-lines.ends[:, 1, 1], kind="stable")[:_MOST_PIECES]


def _add_lines(ax: Axes, pieces: list[FloatArray], lines: Lines, n_tips: int, owner: str) -> None:
    collections = matplotlib_part("collections", owner)
    # The last colour is that of cluster −1, several clusters.
    numbers = range(max(int(lines.cluster.max(initial=0)) + 1, 1))
    palette = matplotlib_part("colors", owner).to_rgba_array([*map(colour_of, numbers), MIXED])
    width = 1.3 if n_tips <= 60 else 0.9 if n_tips <= 400 else 0.5
    for bad in (False, True):
        chosen = np.flatnonzero(lines.rejected == bad)
        if not len(chosen):
            continue
        collection = collections.LineCollection(
            [pieces[k] for k in chosen],
            colors=REJECTED if bad else palette[lines.cluster[chosen]],
            linewidths=width,
            linestyles=(0, (3.0, 1.6)) if bad else "solid",
            capstyle="butt" if bad else "projecting",
            label="rejected" if bad else "accepted",
        )
        ax.add_collection(collection, autolim=False)


def _triangles(drawing: Drawing) -> FloatArray:
    """Return a triangle for every collapsed node, its top at the node, shape (n, 3, 2)."""
    drawn = drawing.drawn
    closed = np.flatnonzero(drawn.is_tip & (drawn.nodes >= drawing.tree.n_leaves))
    out = np.empty((len(closed), 3, 2))
    out[:, 0, 0], out[:, 0, 1] = drawn.place[closed], drawing.height[closed]
    out[:, 1, 0], out[:, 2, 0] = drawn.place[closed] - _HALF, drawn.place[closed] + _HALF
    out[:, 1:, 1] = 0.0
    return out


def _add_triangles(ax: Axes, triangles: list[FloatArray], drawing: Drawing, owner: str) -> None:
    if not triangles:
        return
    drawn = drawing.drawn
    closed = np.flatnonzero(drawn.is_tip & (drawn.nodes >= drawing.tree.n_leaves))
    colours = [colour_of(c) for c in drawing.cluster[closed].tolist()]
    collections = matplotlib_part("collections", owner)
    ax.add_collection(
        collections.PolyCollection(
            triangles, facecolors=colours, edgecolors=colours, linewidths=0.8, label="collapsed"
        ),
        autolim=False,
    )


def _height_axis(ax: Axes, drawing: Drawing, orientation: str, scale: str) -> None:
    """Name the axis of heights and hide the rest of the frame."""
    name = "height"
    if is_separation_height(drawing.tree):
        name = "probability of being apart"
        if scale in ("auto", "log_odds"):
            name = "√(1 + highest − log odds)"
    elif scale == "log_odds":
        name = "√(1 + highest − log odds)"
    if scale == "rank":
        name = "rank of height"
    if orientation in ("top", "bottom"):
        ax.set_ylabel(name)
        bare(ax, ["left"])
    else:
        ax.set_xlabel(name)
        bare(ax, ["bottom"])


def _tip_labels(drawing: Drawing, names: Sequence[str], words: Mapping[int, str]) -> list[str]:
    """Return what stands at each tip, in the order of their places."""
    out = []
    for node in drawing.drawn.tips().tolist():
        is_leaf = node < drawing.tree.n_leaves
        text = short(names[node]) if is_leaf else f"({int(drawing.tree.size[node])})"
        out.append(f"{text} {short(words[node])}" if node in words else text)
    return out


def _tip_clusters(drawing: Drawing) -> list[int]:
    cluster = dict(zip(drawing.drawn.nodes.tolist(), drawing.cluster.tolist(), strict=True))
    return [cluster[node] for node in drawing.drawn.tips().tolist()]


def _tip_names(
    ax: Axes,
    drawing: Drawing,
    names: Sequence[str],
    words: Mapping[int, str],
    orientation: str,
) -> None:
    """Write the names of the tips if there is room for all of them."""
    upright = orientation in ("top", "bottom")
    axis = ax.xaxis if upright else ax.yaxis
    n_tips = drawing.drawn.n_tips
    frame, dpi = ax.get_window_extent(), float(ax.figure.dpi)
    pixels = frame.width if upright else frame.height
    size = font_for(pixels, n_tips, dpi)
    axis.set_ticks([])
    if size is None:
        return
    texts = _tip_labels(drawing, names, words)
    longest = max(map(len, texts))
    if upright and longest * LETTER * FONT_SIZE * dpi / 72 < pixels / n_tips:
        rotation, size = 0.0, FONT_SIZE
    else:
        rotation = 90.0 if upright else 0.0
    axis.set_ticks(
        list(range(n_tips)), labels=texts, rotation=rotation, fontsize=size, parse_math=False
    )
    {"top": ax.xaxis.tick_bottom, "bottom": ax.xaxis.tick_top}.get(
        orientation, ax.yaxis.tick_right if orientation == "left" else ax.yaxis.tick_left
    )()
    ax.tick_params(axis="x" if upright else "y", length=0)
    for text, cluster in zip(axis.get_ticklabels(), _tip_clusters(drawing), strict=True):
        text.set_color("black" if cluster < 0 else colour_of(cluster))


def _checked_words(node_labels: Mapping[int, str] | None, tree: Tree, owner: str) -> dict[int, str]:
    if node_labels is None:
        return {}
    if not isinstance(node_labels, Mapping):
        raise BhclustError(
            f"{owner}: node_labels must map node numbers to words, got {node_labels!r}."
        )
    highest = tree.n_nodes - 1
    return {
        check_count(
            node, name="a node of node_labels", owner=owner, lowest=0, highest=highest
        ): str(text)
        for node, text in node_labels.items()
    }


def _upright(place: float, height: float) -> tuple[float, float]:
    return place, height


def _lying(place: float, height: float) -> tuple[float, float]:
    return height, place


def _write(
    texts: Texts,
    drawing: Drawing,
    words: Mapping[int, str],
    log_odds: bool,
    point: Any,
    to_root: float,
) -> None:
    """Write words on the side of the root and log odds on the other, the highest join first."""
    drawn = drawing.drawn
    joins = np.flatnonzero(~drawn.is_tip)
    joins = joins[np.argsort(-drawing.height[joins], kind="stable")]
    for k in joins.tolist():
        node = int(drawn.nodes[k])
        if node in words:
            x, y = point(drawn.place[k], drawing.height[k])
            texts.put(x, y, words[node], colour="black", side=to_root, over_lines=True)
    if not log_odds or drawing.tree.log_odds is None:
        return
    for k in joins[drawing.rejected[joins]][:_MOST_TRIED].tolist():
        odds = float(drawing.tree.log_odds[drawn.nodes[k]])
        written = f"{odds:.1f}" if abs(odds) < 100 else f"{odds:.0f}"
        x, y = point(drawn.place[k], drawing.height[k])
        texts.put(x, y, written, colour=REJECTED, side=-to_root)


class _Bend:
    """Bends places and heights around a circle of radius one."""

    def __init__(self, drawing: Drawing, arc: float) -> None:
        self._step = arc / max(drawing.drawn.n_tips, 1)
        self._highest = drawing.highest

    def angle(self, place: Any) -> Any:
        return np.pi / 2 - (np.asarray(place) + 0.5) * self._step

    def point(self, place: Any, height: Any) -> FloatArray:
        angle, radius = self.angle(place), 1 - np.asarray(height) / self._highest
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)

    def points(self, ends: FloatArray) -> FloatArray:
        return self.point(ends[..., 0], ends[..., 1])

    def arcs(self, bars: FloatArray) -> list[FloatArray]:
        """Return each bar as a chain of points on its circle."""
        span = (bars[:, 1, 0] - bars[:, 0, 0]) * self._step
        n_points = 2 + np.ceil(span / (2 * np.pi) * _CIRCLE).astype(np.intp)
        out: list[FloatArray] = [np.empty((0, 2))] * len(bars)
        for count in np.unique(n_points):
            rows = np.flatnonzero(n_points == count)
            share = np.linspace(0, 1, int(count))
            places = bars[rows, :1, 0] + share * (bars[rows, 1:, 0] - bars[rows, :1, 0])
            chains = self.point(places, np.repeat(bars[rows, :1, 1], int(count), axis=1))
            for row, chain in zip(rows.tolist(), chains, strict=True):
                out[row] = chain
        return out


def _names_around(
    ax: Axes, drawing: Drawing, bend: _Bend, names: Sequence[str], words: Mapping[int, str]
) -> list[FloatArray]:
    """Write the names of the tips around the circle, and shrink it so that they stay inside.

    Return the line on which each name stands.
    """
    frame, dpi = ax.get_window_extent(), float(ax.figure.dpi)
    half = min(frame.width, frame.height) / 2
    texts = _tip_labels(drawing, names, words)
    letters = max(map(len, texts))
    n_tips = drawing.drawn.n_tips
    for size in np.arange(FONT_SIZE, 4.5, -0.5):
        radius = half - (letters * LETTER * size + 6) * dpi / 72
        tip = 2 * np.pi * radius * (bend._step * n_tips / (2 * np.pi)) / n_tips
        if radius > half / 3 and tip >= 1.05 * size * dpi / 72:
            break
    else:
        return []
    around = []
    limit = half / radius
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit))
    gap = 1 + 3 * dpi / 72 / radius
    for place, (text, cluster) in enumerate(zip(texts, _tip_clusters(drawing), strict=True)):
        angle = float(np.rad2deg(bend.angle(place)))
        ray = np.array([np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))])
        x, y = gap * ray
        around.append(np.array([gap * ray, limit * ray]))
        is_left = ray[0] < 0
        ax.text(
            x,
            y,
            text,
            rotation=angle + 180 if is_left else angle,
            ha="right" if is_left else "left",
            va="center",
            rotation_mode="anchor",
            fontsize=float(size),
            parse_math=False,
            color=MIXED if cluster < 0 else colour_of(cluster),
        )
    return around
