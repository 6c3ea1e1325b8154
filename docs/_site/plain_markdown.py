"""Pages stay plain Markdown that a code host shows as it is; what only a site needs is added here.

Three things happen to a page while Sphinx reads it:

* Pages of the repository's root (DESIGN.md, …) are read in place of their stubs in ``project/``.
* Links to these pages and to examples of the gallery are turned to where the site has them, and
  links to other files outside of ``docs`` become the name of the file.
* The first page and the page of benchmarks get their tables of contents. Pages that no section
  names are gathered in the last one, so that a new page is never lost.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
ROOT_PAGES = {
    "project/design": "DESIGN.md",
    "project/contributing": "CONTRIBUTING.md",
    "project/changelog": "CHANGELOG.md",
    "project/readme": "README.md",
}
SECTIONS = {
    "Start": ["quickstart", "which-method", "probabilities", "command-line", "viewer"],
    "Guides": [
        "guides/mixed-table",
        "guides/binary-with-holes",
        "guides/expression",
        "guides/text",
        "guides/new-points",
        "auto_gallery/index",
    ],
    "Depth": [
        "how-it-works",
        "models",
        "own-model",
        "learning",
        "time-series",
        "experts",
        "coalescent",
        "plots",
        "data-model",
        "exports",
        "scale",
        "gpu",
    ],
    "Reference": ["api/index", "benchmarks", "papers"],
    "Project": list(ROOT_PAGES),
}
TITLES = {"project/readme": "Readme"}  # where the title of a page says too little
LAST = "Reference"  # the section that takes pages nobody has named
GENERATED = ("auto_gallery/index", "api/index")
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^(```.*?^```[^\n]*$)", re.DOTALL | re.MULTILINE)
LOCAL = re.compile(r"^(?![a-z]+:)", re.IGNORECASE)


def prepare(app: Any, docname: str, source: list[str]) -> None:
    """Make a page of the site from a page of the repository."""
    if Path(app.env.doc2path(docname)).suffix != ".md":
        return
    folder = (DOCS / docname).parent
    if docname in ROOT_PAGES:
        page = ROOT / ROOT_PAGES[docname]
        app.env.note_dependency(str(page))
        source[0] = page.read_text("utf-8")
        folder = ROOT
    text = "".join(
        part if part.startswith("```") else _turn_links(part, folder, docname)
        for part in FENCE.split(source[0])
    )
    source[0] = text + contents(docname)


def contents(docname: str) -> str:
    """Return the tables of contents that a page gets."""
    if docname == "benchmarks":
        return _toctree("Results", _pages("results/**/*.md"))
    if docname != "index":
        return ""
    known = {*_pages("*.md"), *_pages("guides/*.md"), *_pages("project/*.md"), *GENERATED}
    named = {page for pages in SECTIONS.values() for page in pages} | {"index"}
    sections = {caption: [p for p in pages if p in known] for caption, pages in SECTIONS.items()}
    sections[LAST] += sorted(known - named)
    return "".join(_toctree(caption, pages) for caption, pages in sections.items())


def _toctree(caption: str, pages: list[str]) -> str:
    entries = [f"{TITLES[p]} </{p}>" if p in TITLES else f"/{p}" for p in pages]
    lines = "\n".join(entries)
    return f"\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {caption}\n\n{lines}\n```\n"


def _pages(pattern: str) -> list[str]:
    found = (path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.glob(pattern))
    return sorted(found)


def _turn_links(text: str, folder: Path, docname: str) -> str:
    here = (DOCS / docname).parent

    def turned(match: re.Match[str]) -> str:
        target, anchor = match.group(1), match.group(2) or ""
        if not LOCAL.match(target):
            return match.group(0)
        path = Path(os.path.normpath(folder / target))
        place = _place_in_site(path)
        if place is None and folder == here:
            return match.group(0)
        return os.path.relpath(place or path, here) + anchor

    return LINK.sub(turned, text)


def _place_in_site(path: Path) -> Path | None:
    for docname, name in ROOT_PAGES.items():
        if path == ROOT / name:
            return DOCS / f"{docname}.md"
    if path == DOCS / "gallery":
        return DOCS / "auto_gallery" / "index.rst"
    if path.parent == DOCS / "gallery" and path.suffix == ".py":
        return DOCS / "auto_gallery" / f"{path.stem}.rst"
    if path == DOCS:
        return DOCS / "index.md"
    return None


def setup(app: Any) -> dict[str, bool]:
    """Connect to the reading of pages."""
    app.connect("source-read", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
