"""Make the pictures of the viewer's page in the documentation: needs Chromium and playwright.

    python docs/figures/make_viewer_pictures.py [name ...]

Digits come with scikit-learn. Zoo, glass and newsgroups are read from the folder that the
environment variable BHCLUST_DATA names, and are left out without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from bhclust import BayesianHierarchicalClustering, BayesianRoseTree
from bhclust.datasets import load_paper_data

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.browser import ABSENT, find_browser, open_browser, wait_until_drawn  # noqa: E402

WIDTH, HEIGHT = 1280, 800


def digits():
    """Binary pixels of 500 handwritten digits, collapsed to the clusters."""
    data = load_digits(n_class=10)
    ink = (data.data[:500] > 7).astype(int)
    names = [f"digit {digit}, no. {i}" for i, digit in enumerate(data.target[:500])]
    places = [f"row {i // 8}, column {i % 8}" for i in range(64)]
    table = pd.DataFrame(ink, columns=places, index=names)
    return table, BayesianHierarchicalClustering(), "Handwritten digits"


def zoo():
    """Animals and their features, as a rose tree."""
    content = load_paper_data("zoo")
    table = pd.DataFrame(content["X"], columns=content["feature_names"], index=content["names"])
    table["legs"] = table["legs"].astype(str)  # 0, 2, 4, 5, 6 or 8: kinds of animal, not amounts
    return table, BayesianRoseTree(), "Zoo"


def glass():
    """Chemical elements in pieces of glass."""
    content = load_paper_data("glass")
    names = [f"glass {i + 1}" for i in range(len(content["X"]))]
    table = pd.DataFrame(content["X"], columns=content["feature_names"], index=names)
    return table, BayesianHierarchicalClustering("diagonal_gaussian"), "Glass"


def newsgroups():
    """Words of 300 articles of four newsgroups."""
    content = load_paper_data("newsgroups4_counts")
    n_rows, n_words = content["shape"].tolist()
    rows = np.sort(np.random.default_rng(0).choice(n_rows, 300, replace=False))
    counts = np.zeros((len(rows), n_words), dtype=int)
    for i, row in enumerate(rows.tolist()):
        stored = slice(content["indptr"][row], content["indptr"][row + 1])
        counts[i, content["indices"][stored]] = content["data"][stored]
    seen = (counts > 0).sum(axis=0)
    kept = (seen >= 12) & (seen <= 90) & ~content["is_stopword"]
    groups = content["class_names"][content["y"][rows]]
    names = [
        f"{group} {article}"
        for group, article in zip(groups, content["article"][rows], strict=True)
    ]
    table = pd.DataFrame(
        (counts[:, kept] > 0).astype(int), columns=content["vocab"][kept], index=names
    )
    return table, BayesianHierarchicalClustering(), "Newsgroups"


def look_at_digits(page):
    """Collapse to the clusters and choose the root."""
    page.click("#collapse-clusters")
    page.locator("#tree").focus()
    page.keyboard.press("Home")


def look_at_zoo(page):
    """Find an animal and show what splits its class."""
    page.fill("#search", "frog")
    page.keyboard.press("Enter")
    page.click("#zoom-fit")
    page.locator("#tree").focus()
    for _ in range(2):
        page.keyboard.press("ArrowLeft")


def look_at_glass(page):
    """Cut by probability, to scale, and choose a node that is no root."""
    page.get_by_label("number").check()
    page.fill("#cut-value", "6")
    page.keyboard.press("Enter")
    page.locator("#tree").focus()
    for key in ("Home", "ArrowRight"):
        page.keyboard.press(key)
    page.get_by_label("against the rest").check()


def look_at_newsgroups(page):
    """Zoom to one part of the tree, so that names and words can be read."""
    page.locator("#tree").focus()
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    page.keyboard.press("f")


PICTURES = {
    "digits": (digits, look_at_digits, "light"),
    "zoo": (zoo, look_at_zoo, "light"),
    "glass": (glass, look_at_glass, "dark"),
    "newsgroups": (newsgroups, look_at_newsgroups, "light"),
}


def main(names):
    """Fit, write the page, look at it, and keep the picture."""
    executable = find_browser()
    if executable is None:
        sys.exit(ABSENT)
    with tempfile.TemporaryDirectory() as folder, open_browser(executable) as browser:
        for name in names or PICTURES:
            make, look, scheme = PICTURES[name]
            if make is not digits and "BHCLUST_DATA" not in os.environ:
                print(f"{name}: left out, BHCLUST_DATA is not set")
                continue
            table, estimator, title = make()
            path = estimator.fit(table).to_html(Path(folder) / f"{name}.html", table, title=title)
            size = {"width": WIDTH, "height": HEIGHT}
            page = browser.new_page(viewport=size, color_scheme=scheme)
            page.goto(path.as_uri())
            wait_until_drawn(page)
            look(page)
            page.evaluate(
                "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))"
            )
            page.screenshot(path=HERE / f"viewer_{name}.png")
            page.close()
            n_bytes = (HERE / f"viewer_{name}.png").stat().st_size
            print(
                f"{name}: page {path.stat().st_size / 1e6:.2f} MB, picture {n_bytes / 1e3:.0f} kB"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
