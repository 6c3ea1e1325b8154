"""How long the viewer takes with 20,000 leaves: size of the page, first paint, longest frames.

    python benchmarks/viewer.py [--out docs/results/viewer] [--repeats 5]

Needs Chromium or Chrome and playwright. Writes a Markdown page and a JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bhclust import BayesianHierarchicalClustering

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import (  # noqa: E402
    ABSENT,
    RECORD_FRAMES,
    find_browser,
    longest_frame,
    open_browser,
    wait_until_drawn,
)

N_LEAVES, N_COLUMNS, N_GROUPS = 20_000, 64, 40


def make_table():
    """Return 0/1 rows of 40 groups, a tenth of the entries turned over."""
    rng = np.random.default_rng(0)
    centres = rng.random((N_GROUPS, N_COLUMNS)) < 0.5
    noise = rng.random((N_LEAVES, N_COLUMNS)) < 0.1
    return (centres[rng.integers(N_GROUPS, size=N_LEAVES)] ^ noise).astype(np.int8)


def look(page):
    """Use the page as a reader would and return the longest frame of each part, in seconds."""
    page.evaluate(RECORD_FRAMES)
    box = page.locator("#tree").bounding_box()
    x, y = box["x"] + 300, box["y"] + 300
    page.mouse.move(x, y)
    frames = {}
    for _ in range(30):
        page.mouse.wheel(0, -120)
        page.wait_for_timeout(25)
    frames["zoom in"] = longest_frame(page)
    page.mouse.down()
    for step in range(30):
        page.mouse.move(x, y + 8 * step)
    page.mouse.up()
    frames["move"] = longest_frame(page)
    page.click("#zoom-fit")
    page.get_by_label("probability").check()
    page.locator("#cut-slider").focus()
    longest_frame(page)
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    frames["slider, probability"] = longest_frame(page)
    page.get_by_label("number").check()
    page.wait_for_timeout(100)
    frames["first cut by number"] = longest_frame(page)
    page.locator("#cut-slider").focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    frames["slider, number"] = longest_frame(page)
    page.click("#collapse-clusters")
    page.wait_for_timeout(100)
    page.click("#expand-all")
    page.wait_for_timeout(100)
    frames["collapse, expand"] = longest_frame(page)
    page.fill("#search", "12345")
    page.keyboard.press("Enter")
    page.wait_for_timeout(100)
    frames["search"] = longest_frame(page)
    return frames


def measure(executable, repeats):
    """Write the page once and look at it several times."""
    X = make_table()
    clustering = BayesianHierarchicalClustering("bernoulli", strategy="greedy", learn=False).fit(X)
    with tempfile.TemporaryDirectory() as folder, open_browser(executable) as browser:
        start = time.perf_counter()
        path = clustering.to_html(Path(folder) / "view.html", X, title="Twenty thousand")
        written = time.perf_counter() - start
        first, frames = [], []
        for _ in range(repeats):
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(path.as_uri())
            wait_until_drawn(page)
            first.append(page.evaluate("bhclustView.firstPaint") / 1000)
            frames.append(look(page))
            page.close()
        return {
            "leaves": N_LEAVES,
            "columns": N_COLUMNS,
            "clusters": int(clustering.n_clusters_),
            "megabytes": path.stat().st_size / 1e6,
            "seconds_to_write": written,
            "first_paint": first,
            "longest_frame": {name: [run[name] for run in frames] for name in frames[0]},
            "browser": browser.version,
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
        }


def as_markdown(result):
    """Return the result as a page."""

    def spread(seconds):
        middle, most = statistics.median(seconds), max(seconds)
        return f"{1000 * middle:.0f} | {1000 * most:.0f}"

    first = result["first_paint"]
    told = (
        f"A page with {result['leaves']:,} leaves and {result['columns']} columns of 0/1 data has "
        f"{result['megabytes']:.1f} MB and is written in {result['seconds_to_write']:.1f} s. "
        f"Opened {len(first)} times in headless Chromium {result['browser']}, without a graphics "
        f"processor, on a machine with {result['cores']} cores that had other work to do (load "
        f"{result['load']:.1f}). Made by `benchmarks/viewer.py`."
    )
    lines = ["# The viewer with 20,000 leaves", "", told, ""]
    lines += ["| milliseconds | median | longest |", "|---|---|---|"]
    lines.append(f"| first paint of the tree, from the start of loading | {spread(first)} |")
    for name, seconds in result["longest_frame"].items():
        lines.append(f"| longest frame: {name} | {spread(seconds)} |")
    return "\n".join([*lines, ""])


def main():
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "viewer")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    executable = find_browser()
    if executable is None:
        sys.exit(ABSENT)
    result = measure(executable, arguments.repeats)
    arguments.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(as_markdown(result))
    print(as_markdown(result))


if __name__ == "__main__":
    main()
