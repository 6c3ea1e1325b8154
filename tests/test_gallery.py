"""Every example of the gallery runs as it is, says something and draws one picture."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
EXAMPLES = sorted(GALLERY.glob("*.py"))


def test_there_is_a_gallery():
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example, tmp_path, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    shown = []
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    plt.close("all")
    monkeypatch.setattr(plt, "show", lambda: shown.extend(plt.get_fignums()))
    try:
        runpy.run_path(str(example), run_name="__main__")
        assert len(shown) == 1, "an example draws one picture and shows it"
        figure = plt.figure(shown[0])
        figure.savefig("picture.png")
        colours = np.unique(np.asarray(figure.canvas.buffer_rgba()).reshape(-1, 4), axis=0)
        assert len(colours) > 10, "the picture is blank"
    finally:
        plt.close("all")
    assert capsys.readouterr().out.strip(), "an example prints what it found"
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_has_a_title_and_a_text(example):
    title, line, _, *text = example.read_text("utf-8").removeprefix('"""\n').splitlines()
    assert line == "=" * len(title)
    assert text[0].strip()
