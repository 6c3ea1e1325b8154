"""The page's part beyond the papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from page_parts import paragraph, section, table

OURS = ("BHC", "BRT", "Rate1")
TREES = (*OURS, "single", "complete", "average", "ward", "HDBSCAN", "genieclust")
METHODS = (*TREES, "BayesianGaussianMixture")
SEVERAL = "takes columns of one kind"
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
    gap = float((values.max(axis=1) - values[:, values.mean(axis=0).argmax()]).max())
    order = [methods[k] for k in np.argsort(-values.mean(axis=0), kind="stable")]
    means = dict(zip(methods, values.mean(axis=0), strict=True))
    text = (
        "By mean over the sets where all of these ended the order is "
        + ", ".join(f"{SHORT.get(m, m)} {means[m]:.3f}" for m in order)
        + f". On one set or another even the first of them is {gap:.3f} below the best."
    )
    return table([f"{len(kept)} sets", *(SHORT.get(m, m) for m in methods)], rows) + (
        "\n" + paragraph(text)
    )


def standing(found: dict[str, Any], score: str, method: str) -> tuple[list[str], list[str]]:
    """Return the sets where a method is at least as good as all others outside, and the rest."""
    ahead, behind = [], []
    for name, row in found.items():
        values = {m: row[m][score] for m in TREES if score in row.get(m, {})}
        others = [v for m, v in values.items() if m not in OURS]
        if method in values and others:
            first = round(values[method], 3) >= round(max(others), 3)
            (ahead if first else behind).append(name)
    return ahead, behind


def standings(found: dict[str, Any]) -> str:
    """Return in words where the library's three trees are first, by both purities."""
    lines = []
    for method in OURS:
        for score, words in (("purity", "leaves"), ("purity of pairs", "pairs")):
            ahead, behind = standing(found, score, method)
            named = f": {', '.join(ahead)}" if ahead and score == "purity" else ""
            lines.append(
                f"* {method}, {words} weighed alike: at least as pure as every method outside this "
                f"library on {len(ahead)} of {len(ahead) + len(behind)} sets{named}."
            )
    return "\n".join(lines) + "\n"


# What the classes look like where that is known; it is no Gaussian, Poisson or table of counts.
SHAPES = {
    "spiral": "three arms",
    "jain": "two crescents of unequal density",
    "flame": "a crescent and a blob",
    "pathbased": "two blobs in a ring",
    "compound": "groups inside groups",
    "letter": "20 fonts a letter, distorted",
    "covtype": "overlapping forest types, 40 soil indicators",
}


def losses(found: dict[str, Any]) -> str:
    """Return a row for each set where BHC is not first: by how much, and what its model says."""
    rows = []
    blamed = searched = 0
    for name in standing(found, "purity", "BHC")[1]:
        row = found[name]
        bhc = row["BHC"]
        others = {
            m: row[m]["purity"] for m in TREES if m not in OURS and "purity" in row.get(m, {})
        }
        top = max(others, key=lambda m: others[m])
        nats = bhc.get("clusters over classes, nats")
        if nats is not None:
            blamed += nats > 0
            searched += nats <= 0
        rows.append(
            [
                name,
                f"{bhc['purity']:.3f}",
                f"{others[top]:.3f} ({SHORT.get(top, top)})",
                f"{bhc['purity'] - others[top]:+.3f}",
                f"{bhc['clusters']} / {bhc['classes']}",
                "–" if nats is None else f"{nats:+.0f}",
                SHAPES.get(name, ""),
            ]
        )
    if not rows:
        return ""
    header = [
        "data",
        "BHC",
        "best other",
        "difference",
        "clusters / classes",
        "nats",
        "classes are",
    ]
    text = (
        "**Where BHC is not first.** The column nats is by how much the model that was chosen "
        "prefers its own flat clusters to the classes, by log p(partition) + log f of its parts. "
        f"It is positive on {blamed} of these {len(rows)} sets: there the classes are not what the "
        "model takes for clusters, and a search for more probable partitions would not find them; "
        "the remedy is another model, or a transformation. "
    )
    if searched:
        text += (
            f"On {searched} the classes are the more probable partition, so that the greedy tree "
            "misses it. "
        )
    return paragraph(text) + "\n" + table(header, rows)


def rose_note(found: dict[str, Any]) -> str:
    """Return how flat BRT's trees are, and what that costs."""
    rows = [
        r for r in found.values() if "purity" in r.get("BRT", {}) and "purity" in r.get("BHC", {})
    ]
    if not rows:
        return ""
    lower = [r for r in rows if r["BRT"]["purity"] < r["BHC"]["purity"]]
    ratio = float(np.median([r["BRT"]["clusters"] / r["BRT"]["classes"] for r in rows]))
    wide = [r["BRT"]["children of the root"] for r in rows if "children of the root" in r["BRT"]]
    flat = sum(count > 2 for count in wide)
    return paragraph(
        f"**BRT is less pure than BHC on {len(lower)} of {len(rows)} sets.** Its own mixing prior "
        f"finds {ratio:.1f} times as many clusters as there are classes (median), and where it "
        "sees no reason for one order of joining them over another it joins them at one node: "
        f"{flat} of {len(wide)} roots have more than two children, the widest has "
        f"{max(wide, default=0)}. That says honestly what the data do not decide, and purity "
        "punishes it: two leaves of a class in different clusters then meet at a node that holds "
        "all classes."
    )


def rate_note(found: dict[str, Any]) -> str:
    """Return what Greedy-Rate1 needs."""
    several = [n for n, r in found.items() if SEVERAL in r.get("Rate1", {}).get("failed", "")]
    slow = [n for n, r in found.items() if "not done" in r.get("Rate1", {}).get("failed", "")]
    text = (
        "**Rate1** has one process for all columns: numbers diffuse, 0/1 beside them too, and "
        "tables of nothing but categories and 0/1 mutate."
    )
    if several:
        text += f" Tables of both ({', '.join(several)}) it refuses with that reason."
    if slow:
        text += f" On {', '.join(slow)} it did not end within the limit."
    return paragraph(text)


def blanks(found: dict[str, Any]) -> str:
    """Return a sentence if fits are missing."""
    missing = {m: [n for n, row in found.items() if m not in row] for m in METHODS}
    blank = sum(map(len, missing.values()))
    if not blank:
        return ""
    named = "; ".join(
        f"{SHORT.get(m, m)} on {', '.join(names)}" for m, names in missing.items() if names
    )
    return paragraph(
        f"{blank} fits were not run yet (empty cells; `benchmarks/papers/beyond.py` goes on with "
        f"them): {named}."
    )


def failures(found: dict[str, Any]) -> str:
    """Return what did not end, as a list."""
    lines: dict[str, list[str]] = {}
    for name, row in found.items():
        for method, cell in row.items():
            if "failed" in cell:
                text = cell["failed"]
                reason = "columns of several kinds, and it takes one" if SEVERAL in text else text
                lines.setdefault(f"{SHORT.get(method, method)}: {reason}", []).append(name)
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
            "components) of scikit-learn, and genieclust. All others see the same numeric "
            "encoding: reals standardised, counts as twice their root, categories one-hot, missing "
            "entries at the column's mean. **Linkage and genieclust are given the true number of "
            "classes** for the Rand index; BHC, BRT, Rate1, HDBSCAN and BGM choose it. Nothing "
            f"sees the classes otherwise. A fit is stopped after {found['time_limit']} s of "
            f"processor time or at {found['memory_limit']} GiB; – is no result (listed below), BGM "
            "has no tree. Numbers of clusters that were chosen:"
        ),
        shapes,
        standings(sets),
        losses(sets),
        rose_note(sets),
        rate_note(sets),
        blanks(sets),
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
