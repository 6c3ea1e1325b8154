"""Compilation: once per installation, announced when it takes long, harmless without a cache."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numba
import numpy as np

from bhclust._kernels import compile as compilation
from bhclust.agglomerate import agglomerate
from bhclust.mixing import DirichletProcess
from bhclust.models import Bernoulli, DiagonalGaussian

FIT = """
import numpy as np
from bhclust._kernels.compile import announced_compilation
from bhclust.agglomerate import agglomerate
from bhclust.mixing import Rose
from bhclust.models import Poisson
X = np.random.default_rng(0).poisson(3, size=(30, 2)).astype(float)
model = Poisson().resolve(X)
with announced_compilation() as watch:
    engine = agglomerate(model, model.suffstats(X), Rose(0.5), rose=True).info.engine
print(engine, watch.n_started)
"""


def test_later_processes_take_the_kernels_from_the_disk(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    compiled = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, check=True
        )
        engine, n_started = done.stdout.split()
        assert engine == "compiled"
        compiled.append(int(n_started))
    assert compiled[0] > 0
    assert compiled[1] == 0


CALLER = """
from bhclust._kernels import compile as compilation
from callee import step
@compilation.compiled
def walk(x):
    return step(x) + 1
"""
CALLEE = """
from bhclust._kernels import compile as compilation
@compilation.compiled_inside
def step(x):
    return 10 * x
"""
WALK = """
import functools, pathlib, sys
from bhclust._kernels import compile as compilation
here = pathlib.Path(sys.argv[1])
(here / "frontier.py").touch()
digest = compilation._digest_of_sources.__wrapped__
compilation._digest_of_sources = lambda: digest(here / "kernels")
sys.path.insert(0, str(here / "kernels"))
import caller
with compilation.announced_compilation() as watch:
    print(caller.walk(2), watch.n_started)
"""


def test_a_kernel_is_compiled_again_when_one_that_it_calls_has_changed(tmp_path):
    """numba's own stamp is that of the caller's file, which stays as it was."""
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "caller.py").write_text(CALLER, "utf-8")
    (kernels / "callee.py").write_text(CALLEE, "utf-8")

    def walk():
        done = subprocess.run(
            [sys.executable, "-c", WALK, str(tmp_path)], capture_output=True, text=True, check=True
        )
        value, n_started = done.stdout.split()
        return int(value), int(n_started) > 0

    assert walk() == (21, True)
    assert walk() == (21, False)
    (kernels / "callee.py").write_text(CALLEE.replace("10", "100"), "utf-8")
    assert walk() == (201, True)


def test_long_compilation_is_announced(monkeypatch, capsys):
    monkeypatch.setattr(compilation, "_PATIENCE_SECONDS", 0.05)
    fresh = numba.njit(lambda x: x + 1)
    with compilation.announced_compilation():
        fresh(1)
        time.sleep(0.3)
    assert "compiling kernels" in capsys.readouterr().err


def test_nothing_is_said_when_nothing_is_compiled(monkeypatch, capsys):
    monkeypatch.setattr(compilation, "_PATIENCE_SECONDS", 0.05)
    with compilation.announced_compilation():
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_without_a_writable_cache_each_process_compiles(monkeypatch):
    """numba raises where it can write neither beside the source nor in the user's cache."""
    real = numba.njit

    def refuse_cache(*arguments, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(*arguments, **options)

    monkeypatch.setattr(numba, "njit", refuse_cache)

    def double(x):
        return 2 * x

    assert compilation.compiled(double)(21) == 42
    assert compilation.compiled_fast(double)(0.5) == 1.0


def test_result_does_not_depend_on_the_number_of_threads(monkeypatch):
    from bhclust._kernels import engine

    monkeypatch.setattr(engine, "_THREADED_ROWS", 10)
    monkeypatch.setattr(engine, "_THREADED_ROWS_OF_LOOP", 10)
    monkeypatch.setattr(engine, "_ROW_BLOCK", 7)
    rng = np.random.default_rng(0)
    for model, X in [
        (DiagonalGaussian(), rng.normal(size=(200, 3))),
        (Bernoulli(), (rng.random((200, 9)) < 0.5).astype(float)),
    ]:
        resolved = model.resolve(X)
        stats = resolved.suffstats(X)
        one, three = (
            agglomerate(resolved, stats, DirichletProcess(1.0), n_jobs=n_jobs) for n_jobs in (1, 3)
        )
        np.testing.assert_array_equal(one.tree.parent, three.tree.parent)
        np.testing.assert_array_equal(one.tree.log_odds, three.tree.log_odds)
        assert one.info == three.info
