"""Examples in docstrings that need a package which is not there are skipped, and say so."""

import importlib.util

import pytest

# example → package; the test extra holds the packages of all others
NEEDS = {"bhclust.bridges.trees.to_ete": "ete4", "bhclust.bridges.trees.to_skbio": "skbio"}


@pytest.fixture(autouse=True)
def _skip_examples_without_their_package(request: pytest.FixtureRequest) -> None:
    package = NEEDS.get(request.node.name)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'bhclust[bridges]'")
