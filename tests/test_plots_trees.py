"""Drawn trees: where every line is against a plain oracle, at any size and in any shape."""

from __future__ import annotations

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given, settings
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, CoalescentClustering, plots
from bhclust.datasets import make_blocks, make_mixed_table
from bhclust.explanations import label_nodes
from bhclust.layout import (
    COLOURS,
    MIXED,
    REJECTED,
    cluster_of_nodes,
    drawn_heights,
    is_separation_height,
    log_odds_heights,
    skeleton,
)
from bhclust.models import Bernoulli
from bhclust.plots import canvas
from bhclust.plots.trees import line_pieces, prepare
from bhclust.tree import Tree
from tests.oracles import layout as oracle
from tests.strategies import chain, trees

BLOCKS = make_blocks(random_state=0).X
GUESTS = make_mixed_table(40, missing=0.2, random_state=1).columns
RNG = np.random.default_rng(7)
POINTS = np.concatenate([RNG.normal(c, 0.5, (k, 2)) for c, k in ((0, 14), (5, 10), (9, 6))])


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module", params=[BayesianHierarchicalClustering, BayesianRoseTree])
def blocks(request):
    return request.param().fit(BLOCKS)


@pytest.fixture(scope="module")
def guests():
    return BayesianHierarchicalClustering().fit(GUESTS)


def balanced(n, **arrays):
    """A tree whose levels join neighbours in twos."""
    parent, live = np.full(2 * n - 1, -1), np.arange(n)
    new = n
    while len(live) > 1:
        half = len(live) // 2
        fresh = np.arange(new, new + half)
        parent[live[: 2 * half : 2]] = parent[live[1 : 2 * half : 2]] = fresh
        live, new = np.concatenate([fresh, live[2 * half :]]), new + half
    return Tree(parent, n, **arrays)


def lines(ax, label):
    """The pieces of the lines of one style, shape (n, 2, 2)."""
    found = [c for c in ax.collections if isinstance(c, LineCollection) and c.get_label() == label]
    return np.array([piece for c in found for piece in c.get_segments()]).reshape(-1, 2, 2)


def texts(ax):
    return [text.get_text() for text in ax.texts]


# -- layout --------------------------------------------------------------------------------------


@given(trees(max_leaves=10, forest=True))
@settings(max_examples=60, deadline=None)
def test_places_are_those_of_the_plain_definition(tree):
    drawn = skeleton(tree)
    assert drawn.nodes.tolist() == list(range(tree.n_nodes))
    assert drawn.place.tolist() == oracle.places(tree)
    assert drawn.is_tip.tolist() == [node < tree.n_leaves for node in range(tree.n_nodes)]
    assert drawn.tips().tolist() == np.argsort(oracle.places(tree)[: tree.n_leaves]).tolist()


@given(trees(min_leaves=3, max_leaves=12, forest=True))
@settings(max_examples=60, deadline=None)
def test_collapsed_trees_keep_every_leaf_and_the_highest_joins(tree):
    most = 3
    drawn = skeleton(tree, most)
    tips = drawn.nodes[drawn.is_tip]
    assert tree.size[tips].sum() == tree.n_leaves
    opened = drawn.nodes[~drawn.is_tip]
    widest = max([len(tree.children(node)) for node in opened], default=0)
    assert drawn.n_tips <= max(most, len(tree.roots) + widest)
    # No join is higher than one that was opened, unless it has too many children.
    for node in tips[tips >= tree.n_leaves]:
        fits = drawn.n_tips + len(tree.children(node)) - 1 <= most
        assert not fits
    assert (drawn.parent[drawn.parent >= 0] > np.flatnonzero(drawn.parent >= 0)).all()


def test_heights_by_log_odds_against_the_plain_definition(blocks):
    tree = blocks.tree_
    assert log_odds_heights(tree) == pytest.approx(oracle.log_odds_heights(tree))
    assert is_separation_height(tree)
    drawn = skeleton(tree)
    by_odds = drawn_heights(tree, drawn, "auto", None)
    assert np.array_equal(by_odds, log_odds_heights(tree))
    ranks = drawn_heights(tree, drawn, "rank", None)
    assert sorted(ranks[tree.n_leaves :]) == pytest.approx(
        np.arange(1, tree.n_nodes - tree.n_leaves + 1) / (tree.n_nodes - tree.n_leaves)
    )


def test_ages_are_not_taken_for_probabilities():
    fitted = CoalescentClustering(random_state=0).fit(POINTS)
    tree = fitted.tree_
    assert not is_separation_height(tree)
    drawn = skeleton(tree)
    assert np.array_equal(drawn_heights(tree, drawn, "auto", None), tree.height)
    assert not is_separation_height(Tree([2, 2, -1], 2))


# -- dendrograms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", ["top", "bottom", "left", "right"])
def test_every_join_is_drawn_where_the_oracle_says(blocks, orientation):
    tree = blocks.tree_
    ax = plots.dendrogram(blocks, orientation=orientation)
    place, height = oracle.places(tree), oracle.log_odds_heights(tree)
    found = np.concatenate([lines(ax, "accepted"), lines(ax, "rejected")])
    if orientation in ("left", "right"):
        found = found[:, :, ::-1]
    n_joins = tree.n_nodes - tree.n_leaves
    assert len(found) == (tree.n_nodes - 1) + n_joins
    pieces = {tuple(np.round(piece.ravel(), 9)) for piece in found}
    for node, above in enumerate(tree.parent):
        if above >= 0:
            leg = (place[node], height[node], place[node], height[above])
            assert tuple(np.round(leg, 9)) in pieces
        if node >= tree.n_leaves:
            outer = [place[child] for child in tree.children(node)]
            bar = (min(outer), height[node], max(outer), height[node])
            assert tuple(np.round(bar, 9)) in pieces
    low, high = sorted(ax.get_ylim() if orientation in ("top", "bottom") else ax.get_xlim())
    assert low == 0
    assert high >= max(height)
    root_side = {
        "top": ax.get_ylim()[1],
        "bottom": ax.get_ylim()[0],
        "left": ax.get_xlim()[0],
        "right": ax.get_xlim()[1],
    }
    assert root_side[orientation] >= max(height)


def test_rejected_joins_are_dashed_red_and_carry_their_log_odds(blocks):
    tree = blocks.tree_
    ax = plots.dendrogram(blocks)
    rejected = np.flatnonzero(tree.log_odds < 0)
    n_pieces = sum(len(tree.children(node)) + 1 for node in rejected)
    assert len(lines(ax, "rejected")) == n_pieces > 0
    (dashed,) = [c for c in ax.collections if c.get_label() == "rejected"]
    assert to_hex(dashed.get_color()[0]) == REJECTED
    assert dashed.get_linestyle()[0][1] is not None
    (solid,) = [c for c in ax.collections if c.get_label() == "accepted"]
    assert solid.get_linestyle()[0][1] is None
    written = {f"{odds:.1f}" if abs(odds) < 100 else f"{odds:.0f}" for odds in tree.log_odds}
    assert texts(ax)
    assert set(texts(ax)) <= written
    assert texts(plots.dendrogram(blocks, log_odds=False)) == []


def test_lines_have_the_colour_of_their_cluster():
    # Leaves 0 and 1 are cluster 0, leaf 2 is cluster 1; the join of both is accepted here.
    tree = Tree([3, 3, 4, 4, -1], 3, log_odds=[np.inf] * 3 + [2.0, 1.0])
    ax = plots.dendrogram(tree, labels=["a", "a", "b"], height="rank")
    (solid,) = [c for c in ax.collections if c.get_label() == "accepted"]
    colours = [to_hex(colour) for colour in solid.get_color()]
    # Legs of 0, 1, 2 and of the join 3, then the bars of 3 and of the root.
    assert colours == [COLOURS[0], COLOURS[0], COLOURS[1], COLOURS[0], COLOURS[0], MIXED]
    tips = [text.get_color() for text in ax.get_xticklabels()]
    assert tips == [COLOURS[0], COLOURS[0], COLOURS[1]]
    assert cluster_of_nodes(tree, np.array([0, 0, 1])).tolist() == [0, 0, 1, 0, -1]


def overlapping(ax):
    """Pairs of texts in the axes whose boxes meet, after the figure was drawn."""
    ax.figure.canvas.draw()
    # The box around a slanting name says little; names stand side by side by construction.
    level = [text for text in ax.texts if text.get_rotation() == 0]
    assert len(level) > 5
    boxes = [text.get_window_extent() for text in level]
    return [
        (level[i].get_text(), level[j].get_text())
        for i in range(len(boxes))
        for j in range(i)
        if boxes[i].overlaps(boxes[j])
    ]


@pytest.mark.parametrize("draw", [plots.dendrogram, plots.radial])
def test_no_text_covers_another_or_leaves_the_figure(draw):
    rng = np.random.default_rng(0)
    X = (rng.random((60, 12)) < 0.5).astype(int)
    fitted = BayesianHierarchicalClustering(Bernoulli(a=0.1, b=0.1), learn=False).fit(X)
    words = label_nodes(fitted, top=3)
    ax = draw(fitted, node_labels=words, log_odds=True)
    assert overlapping(ax) == []
    whole = ax.figure.bbox
    for text in [*ax.texts, *ax.get_xticklabels(), ax.yaxis.label]:
        if not text.get_text():
            continue
        box = text.get_window_extent()
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= whole.x1 + 1 and box.y1 <= whole.y1 + 1
        assert inside, text.get_text()


def test_names_are_shown_only_where_there_is_room(guests):
    ax = plots.dendrogram(guests)
    assert sorted(text.get_text() for text in ax.get_xticklabels()) == sorted(
        str(i) for i in range(40)
    )
    _, narrow = plt.subplots(figsize=(1.5, 1.5))
    assert plots.dendrogram(guests, narrow) is narrow
    assert narrow.get_xticklabels() == []
    names = [f"row {i}\nof $x$ " + "y" * 40 for i in range(40)]
    long = plots.dendrogram(guests, names=names, orientation="left")
    shown = [text.get_text() for text in long.get_yticklabels()]
    assert all(len(text) == canvas.LONGEST_NAME and text.endswith("…") for text in shown)
    assert all("\n" not in text and "$x$" in text for text in shown)
    assert not any(text.get_parse_math() for text in long.get_yticklabels())
    long.figure.canvas.draw()


def test_the_top_of_a_tree(blocks):
    tree = blocks.tree_
    ax = plots.dendrogram(blocks, top=5, node_labels={tree.n_nodes - 2: "a word"})
    drawn = skeleton(tree, 5)
    closed = [node for node in drawn.tips() if node >= tree.n_leaves]
    (triangles,) = [c for c in ax.collections if isinstance(c, PolyCollection)]
    assert len(triangles.get_paths()) == len(closed) > 0
    shown = [text.get_text() for text in ax.get_xticklabels()]
    assert len(shown) == drawn.n_tips
    for node, text in zip(drawn.tips(), shown, strict=True):
        if node >= tree.n_leaves:
            assert text.startswith(f"({tree.size[node]})")
    assert "a word" in " ".join([*shown, *texts(ax)])


@pytest.mark.parametrize("make", [chain, balanced])
def test_fifty_thousand_leaves_are_drawn_without_recursion(make):
    n = 50_000
    log_odds = np.full(2 * n - 1, np.inf)
    log_odds[n:] = np.random.default_rng(0).normal(1.0, 2.0, n - 1)
    tree = make(n, log_odds=log_odds)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        ax = plots.dendrogram(tree, height="rank")
        top = plots.dendrogram(tree, top=20)
    finally:
        sys.setrecursionlimit(limit)
    assert len(lines(ax, "accepted")) + len(lines(ax, "rejected")) == 3 * n - 3
    assert ax.get_xticklabels() == []
    assert len(top.get_xticklabels()) == 20
    ax.figure.canvas.draw()


@given(trees(max_leaves=8, forest=True))
@settings(max_examples=25, deadline=None)
def test_any_tree_can_be_drawn(tree):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the font has no trees
        for draw in (plots.dendrogram, plots.radial):
            ax = draw(tree, height="auto", log_odds=True)
            ax.figure.canvas.draw()
    plt.close("all")


# -- radial --------------------------------------------------------------------------------------


def test_radial_lines_are_the_same_lines_bent(blocks):
    tree = blocks.tree_
    arc = 270.0
    ax = plots.radial(blocks, arc=arc, height="rank")
    thing = canvas.subject(blocks, None, None, "test")
    drawing = prepare(thing, "rank", None, "test")
    flat = line_pieces(drawing)
    found = [c for c in ax.collections if isinstance(c, LineCollection)]
    chains = {bool(c.get_label() == "rejected"): c.get_segments() for c in found}
    for bad in (False, True):
        for (start, end), chain_of in zip(
            flat.ends[flat.rejected == bad], chains[bad], strict=True
        ):
            for (place, height), point in ((start, chain_of[0]), (end, chain_of[-1])):
                angle = np.pi / 2 - np.deg2rad(arc) * (place + 0.5) / tree.n_leaves
                radius = 1 - height
                expected = [radius * np.cos(angle), radius * np.sin(angle)]
                assert point == pytest.approx(expected, abs=1e-9)
            # A bar stays on its circle, a leg on its ray.
            radii = np.hypot(*np.transpose(chain_of))
            if start[1] == end[1]:
                assert radii == pytest.approx(1 - start[1])
            else:
                assert len(chain_of) == 2
    assert len(ax.texts) == tree.n_leaves
