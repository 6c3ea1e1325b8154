"""The page's part beyond the papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from page_parts import paragraph, section, table

OURS = ("BHC", "BRT", "Rate1")
TREES = (*OURS, "single", "complete", "average", "ward", "HDBSCAN", "genieclust")
METHODS = (*TREES, "BayesianGaussianMixture")
SHORT = {"BayesianGaussianMixture": "BGM", "genieclust": "genie"}


def score_table(found: dict[str, Any], score: str, methods: tuple[str, ...]) -> str:
    """Return one row a data set, the best in bold."""
    rows = []
    for name, row in found.items():
        values = {m: row.get(m, {}).get(score) for m in methods}
        known = [v for v in values.values() if v is not None]
        top = max(known, default=0.0)
        cells = []
        for method in methods:
            value = values[method]
            if value is None:
                cells.append("–" if method in row else "")
            else:
                bold = "**" if round(value, 3) == round(top, 3) else ""
                cells.append(f"{bold}{value:.3f}{bold}")
        rows.append([name, *cells])
    return table(["data", *(SHORT.get(m, m) for m in methods)], rows)


def mean_ranks(found: dict[str, Any], score: str, methods: tuple[str, ...]) -> str:
    """Return mean, mean rank and number of firsts over the sets where all methods ended."""
    kept = {
        name: row
        for name, row in found.items()
        if all(row.get(m, {}).get(score) is not None for m in methods)
    }
    if not kept:
        return ""
    values = np.array([[row[m][score] for m in methods] for row in kept.values()])
    ranks = (-values).argsort(axis=1).argsort(axis=1) + 1
    firsts = (np.round(values, 3) == np.round(values, 3).max(axis=1, keepdims=True)).sum(axis=0)
    rows = [
        ["mean", *(f"{v:.3f}" for v in values.mean(axis=0))],
        ["mean rank", *(f"{v:.1f}" for v in ranks.mean(axis=0))],
        ["first", *(str(v) for v in firsts)],
    ]
    return table([f"{len(kept)} sets", *(SHORT.get(m, m) for m in methods)], rows)


def summary(found: dict[str, Any]) -> str:
    """Return in words where BHC stands, among the trees of all methods that were run."""
    ahead, behind = [], []
    for name, row in found.items():
        values = {m: row[m]["purity"] for m in TREES if "purity" in row.get(m, {})}
        if "BHC" not in values or len(values) < 4:
            continue
        others = [v for m, v in values.items() if m not in OURS]
        first = round(values["BHC"], 3) >= round(max(others), 3)
        (ahead if first else behind).append(name)
    blank = sum(m not in row for row in found.values() for m in METHODS)
    text = (
        f"BHC's purity is at least that of every other method outside this library on {len(ahead)} "
        f"sets ({', '.join(ahead)}) and below the best of them on {len(behind)} "
        f"({', '.join(behind)}). Arms, crescents and rings (spiral, jain, pathbased, flame) are no "
        "Gaussians, and single linkage and genieclust follow them. Integer columns are taken for "
        "counts by `auto`; on grey levels and coordinates (the digits) the number of clusters that "
        "is chosen is then far too high, and the Rand index near 0, while the tree cut at the "
        "number of classes is much better. BRT's trees are flat where its prior finds many small "
        "clusters, which costs purity on the larger sets. Rate1 takes columns of one kind only."
    )
    if blank:
        text += (
            f" {blank} fits were not run yet (empty cells; `benchmarks/papers/beyond.py` goes on "
            "with them)."
        )
    return paragraph(text)


def failures(found: dict[str, Any]) -> str:
    """Return what did not end, as a list."""
    lines: dict[str, list[str]] = {}
    for name, row in found.items():
        for method, cell in row.items():
            if "failed" in cell:
                text = cell["failed"].split(":")[0] if "takes columns" in cell["failed"] else ""
                reason = "columns of several kinds" if text else cell["failed"]
                lines.setdefault(f"{method}: {reason}", []).append(name)
    return (
        "\n".join(f"* {what} ({', '.join(where)})" for what, where in sorted(lines.items())) + "\n"
    )


def beyond(found: dict[str, Any]) -> str:
    sets = found["table"]
    rows = []
    for name, row in sets.items():
        size = next((c for c in row.values() if "rows" in c), {})
        bhc = row.get("BHC", {})
        rows.append(
            [
                name,
                f"{size.get('rows', '')} × {size.get('columns', '')}",
                str(size.get("classes", "")),
                str(bhc.get("model", "–")),
                *(str(row.get(m, {}).get("clusters", "–")) for m in (*OURS, "HDBSCAN")),
            ]
        )
    shapes = table(["data", "size", "classes", "model by auto", *OURS, "HDBSCAN"], rows)
    seconds = []
    for name, row in sets.items():
        times = [row.get(m, {}).get("seconds") for m in METHODS]
        seconds.append([name, *("–" if t is None else f"{t:.2f}" for t in times)])
    return section(
        "All labelled tables at full size",
        "beyond",
        paragraph(
            "BHC, BRT and Greedy-Rate1 with default settings against single, complete, average and "
            "Ward linkage (SciPy), HDBSCAN and BayesianGaussianMixture (BGM, up to 50 "
            "components) of "
            "scikit-learn, and genieclust. All others see the same numeric encoding: reals "
            "standardised, counts as twice their root, categories one-hot, missing entries at the "
            "column's mean. **Linkage and genieclust are given the true number of classes**; "
            "BHC, BRT, "
            "Rate1, HDBSCAN and BGM choose it. A fit is stopped after "
            f"{found['time_limit']} s; – is no result (listed below), BGM has no tree. Numbers of "
            "clusters that were chosen:"
        ),
        shapes,
        summary(sets),
        "#### Purity, leaves weighed alike\n",
        score_table(sets, "purity", TREES),
        mean_ranks(sets, "purity", tuple(m for m in TREES if m != "Rate1")),
        "#### Purity, pairs weighed alike\n",
        score_table(sets, "purity of pairs", TREES),
        "#### Adjusted Rand index at the chosen number of clusters (linkage, genie: at the true "
        "one)\n",
        score_table(sets, "ari", METHODS),
        "#### Adjusted Rand index of the trees cut at the true number of classes\n",
        score_table(sets, "ari at the number of classes", OURS),
        "#### Processor seconds\n",
        table(["data", *(SHORT.get(m, m) for m in METHODS)], seconds),
        "#### What did not end\n",
        failures(sets),
    )


PARTS: dict[str, Callable[[dict[str, Any]], str]] = {"beyond": beyond}
