"""Mixing priors against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bhclust._validation import BhclustError
from bhclust.mixing import Constant, DirichletProcess, Rose


def test_dirichlet_process_weights_follow_the_paper():
    # Figure 3 of the BHC paper: d_k = α Γ(n_k) + d_left d_right, π_k = α Γ(n_k) / d_k
    alpha, d_left, d_right = 1.7, 2.0, 5.0
    d = alpha * math.gamma(4) + d_left * d_right
    weights = DirichletProcess(alpha).log_weights(4, 2, math.log(d_left * d_right))
    assert np.exp(weights.log_pi) == pytest.approx(alpha * math.gamma(4) / d)
    assert np.exp(weights.log_1m_pi) == pytest.approx(d_left * d_right / d)
    assert np.exp(weights.log_d) == pytest.approx(d)


@pytest.mark.parametrize("children", [2, 3, 7, 50])
def test_rose_weight_is_that_of_any_cascade(children):
    """π of a node with k children = 1 - Π over its k - 1 binary resolutions of (1 - γ)."""
    weights = Rose(0.3).log_weights(10, children, 0.0)
    assert np.exp(weights.log_pi) == pytest.approx(1 - 0.7 ** (children - 1))
    assert np.exp(weights.log_1m_pi) == pytest.approx(0.7 ** (children - 1))
    assert weights.log_d == pytest.approx(0.0, abs=1e-15)


def test_rose_and_constant_agree_on_binary_nodes():
    for gamma in (0.1, 0.5, 0.9):
        rose, constant = Rose(gamma).log_weights(5, 2, 0.0), Constant(gamma).log_weights(5, 2, 0.0)
        np.testing.assert_allclose(rose, constant, atol=1e-15)


def test_log_complement_survives_balanced_trees():
    """log(1 - π) of a balanced tree of 1,024 leaves is about -n log 2, far below log(eps)."""
    mixing = DirichletProcess(1.0)
    log_d, size = np.log(1.0), 1
    for _ in range(10):
        size *= 2
        weights = mixing.log_weights(size, 2, 2 * log_d)
        log_d = float(weights.log_d)
    log_d_children = float(weights.log_1m_pi + weights.log_d)
    assert float(weights.log_1m_pi) == pytest.approx(log_d_children - log_d)
    assert np.logaddexp(weights.log_pi, weights.log_1m_pi) == pytest.approx(0.0, abs=1e-12)
    assert float(weights.log_1m_pi) < -300


def test_next_item_opens_a_cluster_with_the_restaurant_probability():
    assert np.exp(DirichletProcess(2.0).log_new_cluster(8)) == pytest.approx(0.2)
    assert Constant(0.5).log_new_cluster(8) == -np.inf
    assert Rose(0.5).log_new_cluster(8) == -np.inf


@pytest.mark.parametrize("alpha", [0, -1, np.nan, np.inf, "1", None, True])
def test_bad_alpha_is_refused(alpha):
    with pytest.raises(BhclustError, match="alpha must be a"):
        DirichletProcess(alpha)


@pytest.mark.parametrize("gamma", [0, 1, -0.1, 2, np.nan, "x", None])
@pytest.mark.parametrize("prior", [Constant, Rose])
def test_bad_gamma_is_refused(prior, gamma):
    with pytest.raises(BhclustError, match="gamma must"):
        prior(gamma)
