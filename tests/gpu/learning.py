"""What has to be the same on a device and on the processor while a prior is learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from bhclust._coordinates import Coordinates, Prior
from bhclust._fixed_tree import FixedTree, evaluate, gradient
from bhclust.agglomerate import agglomerate
from bhclust.mixing import Mixing
from tests.zoo import make_case


def assert_same_value_and_gradient(
    name: str, missing: float, mixing: Mixing, rose: bool, device: Any, n: int = 60
) -> None:
    """Compare value and gradient at the tree's own prior and away from it, to 1e-10 relative."""
    rng = np.random.default_rng([n, len(name), int(100 * missing)])
    case = make_case(name, n, rng, missing)
    tree = agglomerate(case.model, case.model.suffstats(case.X), mixing, rose=rose).tree
    coordinates = Coordinates(Prior(case.model, mixing), per_feature=True)
    here, there = FixedTree.of(tree), FixedTree.of(tree, device)
    for scale in (0.0, 0.3):
        free = scale * coordinates.deviation * rng.uniform(-1, 1, len(coordinates.deviation))
        prior = coordinates.prior_at(free)
        expected, found = evaluate(here, *prior), evaluate(there, *prior)
        assert abs(found.value - expected.value) <= 1e-10 * abs(expected.value)
        np.testing.assert_allclose(found.stop, expected.stop, rtol=1e-8, atol=1e-12)
        # From the same weights, so that only the sums over nodes are compared.
        slopes, reference = (gradient(t, *prior, expected) for t in (there, here))
        assert list(slopes) == list(reference)
        for key, own in reference.items():
            assert isinstance(slopes[key], np.ndarray)
            assert slopes[key].shape == np.shape(own)
            # Large terms cancel in a slope: what 1e-10 is relative to is the sum of their sizes.
            size = np.abs(own).max() + len(tree.parent)
            np.testing.assert_allclose(slopes[key], own, rtol=1e-10, atol=1e-12 * size)
