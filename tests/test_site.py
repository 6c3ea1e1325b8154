"""What turns the plain pages into a site: links, tables of contents, API pages, formulas."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def module(name: str):
    spec = importlib.util.spec_from_file_location(name, DOCS / "_site" / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def pages():
    return module("plain_markdown")


@pytest.mark.parametrize(
    ("docname", "text", "expected"),
    [
        ("index", "[x](models.md)", "[x](models.md)"),
        ("index", "[x](../DESIGN.md#3-engines)", "[x](project/design.md#3-engines)"),
        ("guides/text", "[x](../gallery/texts.py)", "[x](../auto_gallery/texts.rst)"),
        ("index", "[x](gallery/)", "[x](auto_gallery/index.rst)"),
        ("index", "[x](https://example.org/a)", "[x](https://example.org/a)"),
    ],
)
def test_links_are_turned_to_where_the_site_has_them(pages, docname, text, expected):
    assert pages._turn_links(text, (DOCS / docname).parent, docname) == expected


def test_links_of_a_page_of_the_root_start_at_the_root(pages):
    turned = pages._turn_links("[x](docs/models.md) [y](DESIGN.md)", DOCS.parent, "project/readme")
    assert turned == "[x](../models.md) [y](design.md)"


def test_every_page_has_a_place_in_the_contents(pages):
    listed = pages.contents("index") + pages.contents("benchmarks")
    plain = [path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")]
    generated = ("api/", "auto_gallery/")
    for page in plain:
        if page != "index" and not page.startswith(generated):
            entries = listed.count(f"\n/{page}\n") + listed.count(f"</{page}>")
            assert entries == 1, page


def test_the_api_reference_has_every_public_module():
    names = [each.name for each in module("api_pages").public_modules()]
    assert len(names) == len(set(names))
    assert {"bhclust", "bhclust.models", "bhclust.posterior", "bhclust.io"} <= set(names)
    assert not any("._" in name for name in names)


def test_api_pages_are_rewritten_only_if_they_change(tmp_path):
    write = module("api_pages").write
    (tmp_path / "gone.rst").write_text("a module that is no more", "utf-8")
    write(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    write(tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert "gone.rst" not in before
    assert "bhclust.models" in (tmp_path / "index.rst").read_text("utf-8")


def test_formulas_become_mathml_with_room_after_functions():
    pytest.importorskip("docutils")
    pytest.importorskip("latex2mathml")
    formula = module("mathml").mathml(r"\log f", "inline")
    assert formula.startswith("<math")
    assert '<mi>log</mi><mspace width="0.17em"/>' in formula
