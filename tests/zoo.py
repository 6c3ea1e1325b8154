"""Every model of the library with random data for it, for tests that run over all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bhclust.models import (
    Bernoulli,
    Categorical,
    ClusterModel,
    DiagonalGaussian,
    Gaussian,
    Mixed,
    Multinomial,
    Poisson,
    RobustTimeSeries,
    TimeSeries,
)


class Case(NamedTuple):
    """A resolved model and the table it was resolved with."""

    model: ClusterModel
    X: np.ndarray


def _with_holes(X: np.ndarray, rng: np.random.Generator, share: float) -> np.ndarray:
    out = np.array(X, dtype=float)
    out[rng.random(X.shape) < share] = np.nan
    return out


def _clustered(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Centres in {-2, 0, 2} with small noise: some points near, some far."""
    centres = rng.choice([-2.0, 0.0, 2.0], size=(3, d))
    return centres[rng.integers(3, size=n)] + 0.3 * rng.normal(size=(n, d))


def make_case(name: str, n: int, rng: np.random.Generator, missing: float = 0.0) -> Case:
    """Return a random data set for one model; ``missing`` is the share of holes."""
    builders: dict[str, Any] = {
        "bernoulli": lambda: (
            Bernoulli(a=0.6, b=0.9),
            _with_holes(_binary(n, 6, rng), rng, missing),
        ),
        "categorical": lambda: (
            Categorical(concentration=0.7, n_categories=(3, 2, 4)),
            _with_holes(rng.integers(0, [3, 2, 4], size=(n, 3)), rng, missing),
        ),
        "multinomial": lambda: (
            Multinomial(concentration=0.5),
            rng.multinomial(6, rng.dirichlet(np.ones(4), size=2)[rng.integers(2, size=n)]) * 1.0,
        ),
        "poisson": lambda: (
            Poisson(shape=1.5, rate=0.5),
            _with_holes(rng.poisson([1, 4, 8], size=(n, 3)), rng, missing),
        ),
        "words": lambda: (
            # rare words have rates in the thousands
            Poisson(shape=rng.choice([0.3, 40.0], 80), rate=rng.choice([0.5, 3e4], 80)),
            _with_holes(_words(n, 80, rng), rng, missing),
        ),
        "word_rows": lambda: (
            Multinomial(concentration=rng.choice([0.01, 0.4], 80)),
            _words(n, 80, rng),
        ),
        "diagonal_gaussian": lambda: (
            DiagonalGaussian(strength=0.1, shape=1.5, rate=0.4),
            _with_holes(_clustered(n, 3, rng), rng, missing),
        ),
        "gaussian": lambda: (Gaussian(strength=0.1), _clustered(n, 2, rng)),
        "time_series": lambda: (
            TimeSeries(times=[0, 1, 1, 2.5, 3, 5], length_scale=1.5, amplitude=1.6, noise=0.4),
            _with_holes(_clustered(n, 4, rng)[:, [0, 1, 1, 2, 2, 3]], rng, missing)
            + 0.2 * rng.normal(size=(n, 6)),
        ),
        "robust_time_series": lambda: (
            RobustTimeSeries(times=[0, 1, 1, 3], length_scale=1.5, amplitude=1.6, noise=0.4),
            _with_holes(_clustered(n, 3, rng)[:, [0, 1, 1, 2]], rng, missing)
            + 0.2 * rng.normal(size=(n, 4)),
        ),
        "mixed": lambda: (
            Mixed([(Bernoulli(a=0.5, b=0.5), [0, 1]), (DiagonalGaussian(), [2, 3])]),
            _with_holes(np.hstack([_binary(n, 2, rng), _clustered(n, 2, rng)]), rng, missing),
        ),
    }
    model, X = builders[name]()
    if name in ("multinomial", "word_rows") and missing:
        X[rng.random(n) < missing] = np.nan
    return Case(model.resolve(X), X)


def _words(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    rates = rng.gamma(0.1, 2.0, size=(3, d)) * rng.permutation(np.arange(d) % 8 == 0)
    return rng.poisson(rates[rng.integers(3, size=n)]).astype(float)


def _binary(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    probability = rng.choice([0.05, 0.95], size=(3, d))
    return (rng.random((n, d)) < probability[rng.integers(3, size=n)]).astype(float)


MODELS = (
    "bernoulli",
    "categorical",
    "multinomial",
    "poisson",
    "diagonal_gaussian",
    "gaussian",
    "time_series",
    "robust_time_series",
    "mixed",
)
#: (model, share of missing entries) for every model that takes missing values, and without
# Models whose statistics add up; RobustTimeSeries counts members, and takes no parts of them.
ADDITIVE_MODELS = tuple(name for name in MODELS if name != "robust_time_series")
MODELS_AND_HOLES = [(name, 0.0) for name in MODELS] + [
    (name, 0.25) for name in MODELS if name != "gaussian"
]
ADDITIVE_MODELS_AND_HOLES = [case for case in MODELS_AND_HOLES if case[0] in ADDITIVE_MODELS]
