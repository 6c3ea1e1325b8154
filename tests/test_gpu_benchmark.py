"""The benchmark of the graphics processor, as far as it goes without one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from bhclust.agglomerate import agglomerate
from tests.gpu.simulated import COMPILER, SimulatedDevice

ROOT = Path(__file__).parents[1]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("gpu_benchmark", ROOT / "benchmarks" / "gpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_figures_that_are_there(benchmark, tmp_path):
    results = ROOT / "docs" / "results"
    figures = json.loads((results / "gpu.json").read_text("utf-8"))
    page = tmp_path / "gpu.md"
    benchmark.write_markdown(figures, page)
    assert page.read_text("utf-8") == (results / "gpu.md").read_text("utf-8")
    del figures["same"], figures["trees"][0]["processor"]
    benchmark.write_markdown(figures, page)
    text = page.read_text("utf-8")
    assert "## The same tree\n\nLog odds" in text
    assert "Not measured." in text.split("## The same tree")[1].split("## New rows")[0]
    first = next(line for line in text.splitlines() if line.startswith("| Bernoulli | 10,000"))
    assert first.endswith("| not measured | yes |")


def test_without_a_card_one_sentence_and_no_figures(benchmark, tmp_path, monkeypatch):
    def none():
        raise ImportError("device='cuda' needs cupy")

    monkeypatch.setattr(benchmark, "cuda_device", none)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--output", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"^Nothing was measured, .*needs cupy") as caught:
        benchmark.main()
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_passes_are_counted_without_a_card(benchmark):
    if COMPILER is None:
        pytest.skip("the kernels are simulated with a C++ compiler, and there is none")
    rows = benchmark.run_passes(400, 16)
    assert [row["model"] for row in rows] == [
        name + (", rose tree" if rose else "") for name, _, rose in benchmark.PASSES
    ]
    for row in rows:
        # Of 400 clusters few look again; by ratios the engine for the processor has no such bound.
        assert row["rescans"] < 100
        if row["model"].endswith("rose tree"):
            assert row["rescans"] < row["processor_rescans"]
        assert 0 < row["new_cluster_percent"] <= 100


def test_learning_is_timed_beside_the_processor(benchmark, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "cuda_device", SimulatedDevice)
    monkeypatch.setattr(
        benchmark, "agglomerate", lambda *arguments, device: agglomerate(*arguments)
    )
    cases = [(name, kind, 4, n) for name, kind, _, n in benchmark.LEARNING]
    monkeypatch.setattr(benchmark, "LEARNING", [(*case[:3], 40) for case in cases])
    rows = benchmark.run_learning(largest=1000)
    assert len(rows) == len(cases) == len(capsys.readouterr().out.splitlines())
    for row in rows:
        assert row["largest_difference"] < 1e-9
        assert min(row[name] for name in ("sent", "value", "gradient", "processor_value")) > 0
    assert benchmark.run_learning(largest=10) == []
