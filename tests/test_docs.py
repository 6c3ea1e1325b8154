"""Every Python block of the documentation runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from bhclust import BayesianRoseTree

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#:]+)\)")


def run(page: Path) -> dict:
    """Run the blocks of a page one after the other in one namespace and return it."""
    text = page.read_text("utf-8")
    names: dict = {"__name__": "__main__"}
    for match in BLOCK.finditer(text):
        # Empty lines before the code make the numbers of lines in a traceback those of the page.
        code = "\n" * text.count("\n", 0, match.start(1)) + match.group(1)
        exec(compile(code, str(page), "exec", dont_inherit=True), names)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page)  # warnings are errors in all tests
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:  # a page leaves its figures open
        pyplot.close("all")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_a_model_of_ones_own_goes_through_the_whole_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(ROOT / "docs" / "own-model.md")
    clustering, X, kind = names["clustering"], names["X"], names["Exponential"]
    truth = np.repeat([0, 1], [30, 20])
    assert np.mean(clustering.cut(n_clusters=2) == truth) > 0.9
    assert clustering.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    assert clustering.predict([[0.9, 1.2, np.nan, 0.3]]).tolist() == [0]
    u = (np.arange(4000) + 0.5) / 4000
    one_column = kind().resolve(X[:, :1])
    items = one_column.suffstats(u[:, None] / (1 - u[:, None]))
    density = np.exp(one_column.log_marginal(items))
    assert np.mean(density / (1 - u) ** 2) == pytest.approx(1.0, abs=1e-3)
    rose = BayesianRoseTree(kind()).fit(X, sample_weight=np.arange(50) % 3)
    assert rose.tree_.n_leaves == 33
    with pytest.raises(ValueError, match="cannot draw samples: give it a method"):
        clustering.sample(1)
    with pytest.raises(ValueError, match="cannot fill in missing entries"):
        clustering.impute(X)


def test_the_readme_example_is_ten_lines_and_the_first_thing_to_see():
    text = (ROOT / "README.md").read_text("utf-8")
    (example,) = BLOCK.findall(text)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    first_screen = "\n".join(text.splitlines()[:40])
    for words in ("make run", "make test", "bhclust fit", "BayesianHierarchicalClustering().fit"):
        assert words in first_screen
