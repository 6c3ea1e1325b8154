"""Plots: what is shown against the data and the model, and what is refused."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import seaborn
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree, CoalescentClustering, plots
from bhclust.datasets import make_blocks, make_mixed_table
from bhclust.explanations import label_nodes
from bhclust.layout import COLOURS, skeleton
from bhclust.models import GaussianProcessExpert, Multinomial, TimeSeries
from bhclust.plots import canvas
from bhclust.plots.posterior import block_means, region_levels
from bhclust.plots.table import colours_of_column
from bhclust.posterior import co_clustering_matrix
from bhclust.tree import Tree
from tests.oracles import layout as oracle

BLOCKS = make_blocks(random_state=0).X
GUESTS = make_mixed_table(40, missing=0.2, random_state=1).columns
RNG = np.random.default_rng(7)
POINTS = np.concatenate([RNG.normal(c, 0.5, (k, 2)) for c, k in ((0, 14), (5, 10), (9, 6))])
TIMES = np.linspace(0, 6, 8)
CURVES = np.sin(TIMES + np.pi * (np.arange(20) % 2)[:, None]) + 0.1 * RNG.normal(size=(20, 8))


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


@pytest.fixture(scope="module")
def points():
    return BayesianHierarchicalClustering("gaussian").fit(POINTS)


@pytest.fixture(scope="module")
def curves():
    X = CURVES.copy()
    X[3, 2] = np.nan
    return BayesianHierarchicalClustering(TimeSeries(times=TIMES)).fit(X)


def texts(ax):
    return [text.get_text() for text in ax.texts]


# -- the other plots -----------------------------------------------------------------------------


def every_plot(blocks, guests, points, curves):
    experts = BayesianRoseTree(GaussianProcessExpert(noise=0.3)).fit(POINTS)
    return [
        lambda ax: plots.dendrogram(blocks, ax),
        lambda ax: plots.radial(blocks, ax),
        lambda ax: plots.heatmap(guests, GUESTS, ax),
        lambda ax: plots.density(points, None, ax),
        lambda ax: plots.co_clustering(blocks, ax),
        lambda ax: plots.n_clusters(blocks, ax),
        lambda ax: plots.curves(curves, 0, ax),
        lambda ax: plots.regression(experts, ax),
    ]


def test_every_plot_takes_axes_and_returns_them(blocks, guests, points, curves):
    for draw in every_plot(blocks, guests, points, curves):
        n_figures = len(plt.get_fignums())
        made = draw(None)
        assert isinstance(made, Axes)
        assert len(plt.get_fignums()) == n_figures + 1
        figure, ax = plt.subplots()
        assert draw(ax) is ax
        assert len(plt.get_fignums()) == n_figures + 2
        figure.canvas.draw()
        with pytest.raises(ValueError, match="ax must be a matplotlib Axes"):
            draw(figure)
        plt.close("all")


def test_parts_of_a_figure_will_do(blocks, guests):
    figure = plt.figure(layout="constrained")
    left, right = figure.subfigures(1, 2)
    for part in (left, right):
        ax = part.subplots()
        assert plots.dendrogram(blocks, ax) is ax
    assert plots.heatmap(guests, GUESTS, figure.subfigures().subplots())
    figure.canvas.draw()


def test_heat_map_rows_stand_beside_their_leaves(guests):
    ax = plots.heatmap(guests, GUESTS)
    tree_axes, stripe, heat = ax.child_axes
    order = skeleton(guests.tree_).tips()
    assert [t.get_text() for t in heat.get_yticklabels()] == [str(leaf) for leaf in order]
    assert tree_axes.get_ylim() == heat.get_ylim() == (39.5, -0.5)
    picture = heat.images[0].get_array()
    assert picture.shape == (40, len(GUESTS), 4)
    frame = pd.DataFrame(GUESTS)
    shown = [t.get_text() for t in heat.get_xticklabels()]
    kinds = {column.name: column.kind for column in guests.schema_.columns}
    rank = ["real", "count", "binary", "categorical"]
    assert [rank.index(kinds[name]) for name in shown] == sorted(
        rank.index(kinds[name]) for name in shown
    )
    for j, name in enumerate(shown):
        missing = frame[name].isna().to_numpy()[order]
        grey = np.all(np.isclose(picture[:, j], mpl.colors.to_rgba("#9e9e9e")), axis=1)
        assert np.array_equal(grey, missing), name
    colours = [to_hex(colour) for colour in stripe.images[0].get_array()[:, 0]]
    assert colours == [COLOURS[guests.labels_[leaf]] for leaf in order]


def test_colours_of_columns_by_kind():
    holes = np.array([np.nan, 0.0, 1.0, 5.0])
    real, count = (colours_of_column(holes, kind) for kind in ("real", "count"))
    for colours in (real, count):
        assert to_hex(colours[0]) == "#9e9e9e"
        assert len({to_hex(colour) for colour in colours}) == 4
    assert real[1, 2] > real[1, 0]  # low is blue
    assert real[3, 0] > real[3, 2]  # high is red
    codes = colours_of_column(np.array([0.0, 1.0, 1.0, np.nan]), "categorical")
    assert to_hex(codes[1]) == to_hex(codes[2]) != to_hex(codes[0])
    ones = colours_of_column(np.array([0.0, 1.0, np.nan]), "binary")
    assert ones[1, :3].mean() < 0.3 < ones[2, :3].mean() < ones[0, :3].mean()
    nothing = colours_of_column(np.full(3, np.nan), "real")
    assert {to_hex(colour) for colour in nothing} == {"#9e9e9e"}
    assert len({to_hex(c) for c in colours_of_column(np.full(3, 4.0), "real")}) == 1


def test_heat_map_chooses_columns_of_a_wide_table():
    rng = np.random.default_rng(0)
    X = (rng.random((40, 300)) < 0.05).astype(float)
    X[:20, 7:10] = X[20:, 11:14] = 1
    fitted = BayesianHierarchicalClustering(n_clusters=2).fit(scipy.sparse.csr_array(X))
    ax = plots.heatmap(fitted, scipy.sparse.csr_array(X), max_columns=12)
    shown = [t.get_text() for t in ax.child_axes[2].get_xticklabels()]
    assert len(shown) == 12
    assert {"x7", "x11"} <= set(shown)
    ax = plots.heatmap(fitted, X, columns=["x3", 11])
    assert [t.get_text() for t in ax.child_axes[2].get_xticklabels()] == ["x3", "x11"]
    with pytest.raises(ValueError, match="no column 'legs'"):
        plots.heatmap(fitted, X, columns=["legs"])
    with pytest.raises(ValueError, match="at least one column"):
        plots.heatmap(fitted, X, columns=[])
    with pytest.raises(ValueError, match="X must hold the 40 rows that were fitted, got 5"):
        plots.heatmap(fitted, X[:5])


def test_neighbouring_rows_of_a_long_table_share_a_line_of_the_picture():
    X = np.repeat([[0, 1], [1, 0]], [1200, 1300], axis=0)
    fitted = BayesianHierarchicalClustering(learn=False, strategy="ward").fit(X)
    ax = plots.heatmap(fitted, X)
    heat = ax.child_axes[2]
    picture = picture_of(heat)
    assert picture.shape == (1000, 2, 4)
    assert heat.get_ylim() == (2499.5, -0.5)
    dark = picture[:, :, :3].mean(axis=2) < 0.3
    assert dark[:, 0].mean() == pytest.approx(0.52, abs=0.01)
    assert np.count_nonzero(np.diff(dark[:, 0])) == 1


def test_rows_of_weight_zero_are_not_in_the_pictures():
    weight = np.arange(len(POINTS)) % 3
    fitted = BayesianHierarchicalClustering("diagonal_gaussian").fit(POINTS, sample_weight=weight)
    ax = plots.heatmap(fitted, POINTS)
    rows = [int(t.get_text()) for t in ax.child_axes[2].get_yticklabels()]
    assert sorted(rows) == np.flatnonzero(weight).tolist()
    shown = np.concatenate([offsets(c) for c in scatters(plots.density(fitted))])
    assert np.sort(shown, axis=0) == pytest.approx(np.sort(POINTS[weight > 0], axis=0))


def scatters(ax):
    return [c for c in ax.collections if isinstance(c, mpl.collections.PathCollection)]


def picture_of(ax):
    """The numbers behind the only image of some axes."""
    return np.asarray(ax.images[0].get_array())


def offsets(group):
    return np.asarray(group.get_offsets())


def test_density_shows_every_point_in_its_cluster(points):
    ax = plots.density(points)
    found = scatters(ax)
    assert len(found) == points.n_clusters_
    for label, group in enumerate(found):
        inside = POINTS[points.labels_ == label]
        assert np.sort(offsets(group), axis=0) == pytest.approx(np.sort(inside, axis=0))
        assert to_hex(group.get_facecolor()[0]) == COLOURS[label]
    named = pd.DataFrame(POINTS, columns=["a $1$", "b"])
    fitted = BayesianHierarchicalClustering("gaussian").fit(named)
    assert plots.density(fitted, named).get_xlabel() == "a $1$"
    coalescent = CoalescentClustering(n_clusters=2, random_state=0).fit(named)
    assert len(scatters(plots.density(coalescent, named, n_grid=20))) == 2
    with pytest.raises(ValueError, match="does not keep the rows; pass them as X"):
        plots.density(coalescent)
    with pytest.raises(ValueError, match="X must hold the 30 rows"):
        plots.density(points, POINTS[:3])


def test_points_with_holes_are_left_out_of_the_picture():
    X = POINTS.copy()
    X[:3, 1] = np.nan
    ax = plots.density(BayesianHierarchicalClustering("diagonal_gaussian").fit(X), n_grid=30)
    shown = np.concatenate([offsets(c) for c in scatters(ax)])
    assert np.isnan(shown).any(axis=1).sum() == 3
    assert np.isfinite([*ax.get_xlim(), *ax.get_ylim()]).all()
    ax.figure.canvas.draw()
    assert canvas.ranges(np.full(3, np.nan)) == (-1.0, 1.0)
    assert canvas.ranges(np.zeros(3)) == (-1.0, 1.0)


def test_contours_hold_the_shares_that_they_say():
    # Of a normal density in the plane, 1 - exp(-r²/2) lies within radius r.
    x = np.linspace(-6, 6, 401)
    squares = x[:, None] ** 2 + x**2
    values = np.exp(-squares / 2)
    shares = (0.9, 0.5)
    for level, share in zip(region_levels(values, shares), shares, strict=True):
        radius = np.sqrt(-2 * np.log(level))
        assert 1 - np.exp(-(radius**2) / 2) == pytest.approx(share, abs=2e-3)
    assert region_levels(np.ones((3, 3)), shares) == [0.5]


@pytest.mark.parametrize("n_blocks", [1, 3, 7, 48])
def test_block_means_are_those_of_the_full_matrix(blocks, n_blocks):
    tree = blocks.tree_
    order = skeleton(tree).tips()
    place = np.empty(tree.n_leaves, dtype=np.intp)
    place[order] = np.arange(tree.n_leaves)
    edges = np.linspace(0, tree.n_leaves, n_blocks + 1).astype(np.intp)
    expected = oracle.block_means(co_clustering_matrix(tree), order, edges)
    assert block_means(tree, place, edges) == pytest.approx(expected, abs=1e-9)


def test_co_clustering_pictures(blocks):
    ax = plots.co_clustering(blocks)
    order = skeleton(blocks.tree_).tips()
    expected = co_clustering_matrix(blocks.tree_)[np.ix_(order, order)]
    assert picture_of(ax) == pytest.approx(expected, abs=1e-9)
    few = plots.co_clustering(blocks.tree_, max_blocks=6)
    assert few.images[0].get_array().shape == (6, 6)
    fitted = CoalescentClustering(random_state=0).fit(POINTS)
    order = skeleton(fitted.tree_).tips()
    expected = fitted.co_clustering_matrix()[np.ix_(order, order)]
    assert picture_of(plots.co_clustering(fitted)) == pytest.approx(expected)
    with pytest.raises(ValueError, match="too large to draw"):
        plots.co_clustering(fitted, max_blocks=2)
    with pytest.raises(ValueError, match="carries no probabilities"):
        plots.co_clustering(Tree([2, 2, -1], 2))


def test_bars_are_the_distribution_of_the_number_of_clusters(blocks):
    ax = plots.n_clusters(blocks)
    probability = blocks.n_clusters_distribution()
    bars = {round(bar.get_x() + bar.get_width() / 2): bar for bar in ax.patches}
    for k, bar in bars.items():
        assert bar.get_height() == pytest.approx(probability[k])
        fitted = k == blocks.n_clusters_
        assert (to_hex(bar.get_facecolor()) == COLOURS[0]) == fitted
    assert sum(bar.get_height() for bar in ax.patches) > 0.99
    assert f"the {blocks.n_clusters_} fitted" in ax.get_xlabel()
    assert plots.n_clusters(blocks.tree_).patches
    greedy = CoalescentClustering(random_state=0).fit(POINTS)
    expected = np.zeros(greedy.n_clusters_ + 1)
    expected[-1] = 1
    assert greedy.n_clusters_distribution() == pytest.approx(expected)
    assert len(plots.n_clusters(greedy).patches) == 1
    sampled = CoalescentClustering(inference="smc-postpost", n_particles=8, random_state=0)
    sampled.fit(POINTS[:12])
    assert sampled.n_clusters_distribution().sum() == pytest.approx(1)
    assert plots.n_clusters(sampled).patches


def test_curves_are_the_models_with_their_bands(curves):
    model, tree = curves.model_, curves.tree_
    ax = plots.curves(curves, 1, n_points=31)
    members = np.flatnonzero(curves.labels_ == 1)
    *thin, mean = ax.lines
    assert len(thin) == len(members)
    shown = sorted(line.get_ydata().tolist() for line in thin)
    rows = [
        row[~np.isnan(row)].tolist()
        for row in np.where((np.arange(20)[:, None] == 3) & (np.arange(8) == 2), np.nan, CURVES)[
            members
        ]
    ]
    assert np.concatenate(shown) == pytest.approx(np.concatenate(sorted(rows)))
    node = next(k for k in range(tree.n_nodes) if set(tree.leaves(k)) == set(members))
    at = np.linspace(TIMES[0], TIMES[-1], 31)
    expected = model.curve(tree.stats[[node]], at)
    assert mean.get_xdata() == pytest.approx(at)
    assert mean.get_ydata() == pytest.approx(expected.mean[0])
    wide, narrow = ax.collections
    for shape, deviation in (
        (wide, np.hypot(expected.standard_deviation[0], model.noise)),
        (narrow, expected.standard_deviation[0]),
    ):
        top = shape.get_paths()[0].vertices[:, 1].max()
        assert top == pytest.approx((expected.mean[0] + 2 * deviation).max())
    assert len(plots.curves(curves).lines) == curves.n_clusters_
    many = BayesianHierarchicalClustering(TimeSeries(times=TIMES), n_clusters=15).fit(CURVES)
    assert len(plots.curves(many).lines) == 12
    assert plots.curves(curves, node=node, members=False).get_legend().get_texts()[
        0
    ].get_text() == (f"node {node} ({len(members)})")


def test_regression_shows_the_points():
    X = np.column_stack([np.linspace(0, 3, 24), np.where(np.arange(24) % 2, 4.0, -4.0)])
    fitted = BayesianRoseTree(GaussianProcessExpert(noise=0.1)).fit(X)
    ax = plots.regression(fitted, n_grid=30)
    shown = np.concatenate([offsets(c) for c in scatters(ax)])
    assert shown[np.argsort(shown[:, 0])] == pytest.approx(X)


# -- what is refused, and other packages ---------------------------------------------------------


def test_bad_input_is_one_clear_sentence(blocks, guests, points, curves):
    cases = [
        (lambda: plots.dendrogram(object()), "draws a Tree or a fitted estimator.*got object"),
        (lambda: plots.radial(BayesianRoseTree()), "call fit first"),
        (lambda: plots.dendrogram(blocks, orientation="up"), "orientation must be one of"),
        (lambda: plots.dendrogram(blocks, height="tall"), "height must be one of"),
        (lambda: plots.dendrogram(blocks, top=1), "top must be a whole number, at least 2"),
        (lambda: plots.dendrogram(blocks, labels=[0, 1]), "one label a leaf \\(48\\)"),
        (lambda: plots.dendrogram(blocks, names=["a"]), "one name a leaf \\(48\\)"),
        (lambda: plots.dendrogram(blocks, node_labels={999: "a"}), "a node of node_labels must"),
        (lambda: plots.dendrogram(blocks, node_labels=["a"]), "must map node numbers to words"),
        (lambda: plots.dendrogram(Tree([2, 2, -1], 2), height="log_odds"), "carries no log odds"),
        (lambda: plots.radial(blocks, arc=0), "arc must be above 0"),
        (lambda: plots.heatmap(BayesianRoseTree(), GUESTS), "needs a fitted estimator"),
        (lambda: plots.heatmap(blocks.tree_, GUESTS), "needs a fitted estimator.*got Tree"),
        (lambda: plots.density(guests), "draws tables of two real columns, and this one has 8"),
        (lambda: plots.density(points, n_grid=1), "n_grid must be"),
        (lambda: plots.co_clustering(blocks, max_blocks=1), "max_blocks must be"),
        (lambda: plots.curves(points), "draws clusters of a TimeSeries model.*has Gaussian"),
        (lambda: plots.curves(curves, 9), "label must be a whole number"),
        (lambda: plots.curves(curves, 0, node=1), "give label or node, not both"),
        (lambda: plots.curves(curves, members=1), "members must be True or False"),
        (lambda: plots.regression(points), "draws a GaussianProcessExpert of one input"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    assert plt.get_fignums() == []


def test_without_matplotlib_there_is_a_sentence():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from bhclust import Tree, plots\n"
        "try:\n    plots.dendrogram(Tree([2, 2, -1], 2))\n"
        "except ImportError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    sentence = "plots.dendrogram needs matplotlib: install it with `pip install 'bhclust[plot]'`."
    assert run.stdout.strip() == sentence


@pytest.mark.parametrize("kind", [BayesianHierarchicalClustering, BayesianRoseTree])
def test_seaborn_draws_our_trees(kind):
    frame = pd.DataFrame(POINTS, columns=["a", "b"])
    fitted = kind().fit(frame)
    grid = seaborn.clustermap(frame, row_linkage=fitted.tree_.to_linkage(), col_cluster=False)
    order = grid.dendrogram_row.reordered_ind
    assert sorted(order) == list(range(len(POINTS)))
    # Every cluster is one block of rows in the picture.
    labels = fitted.labels_[order]
    assert np.count_nonzero(np.diff(labels)) == fitted.n_clusters_ - 1


def test_every_picture_of_the_page_has_its_code_and_is_small():
    folder = Path(__file__).parents[1] / "docs" / "figures"
    code = ast.parse((folder / "make_figures.py").read_text("utf-8"))
    lists = [
        [name.id for name in node.value.elts]
        for node in code.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Tuple)
    ]
    made = {name for names in lists for name in names}
    page = (folder.parent / "plots.md").read_text("utf-8")
    shown = set(re.findall(r"\(figures/(\w+)\.png\)", page))
    others = ("viewer_", "readme")  # made by scripts of their own
    drawn = {path.stem for path in folder.glob("*.png") if not path.stem.startswith(others)}
    assert shown == made == drawn
    assert max(path.stat().st_size for path in folder.glob("*.png")) < 150_000


def test_words_label_the_nodes_of_documents():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(30, 0.2), size=3)
    X = np.array([rng.multinomial(60, topics[k % 3]) for k in range(45)])
    names = [f"word{j}" for j in range(30)]
    fitted = BayesianHierarchicalClustering(Multinomial()).fit(pd.DataFrame(X, columns=names))
    words = label_nodes(fitted, top=2)
    ax = plots.dendrogram(fitted, top=6, node_labels=words, orientation="left")
    shown = " ".join([*texts(ax), *(t.get_text() for t in ax.get_yticklabels())])
    drawn = set(skeleton(fitted.tree_, 6).nodes.tolist())
    assert all(text in shown for node, text in words.items() if node in drawn)
