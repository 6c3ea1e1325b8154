"""
Which model fits?
=================

Evidence and held-out density of three models of the same measurements, side by side. The evidence
judges models of one kind; the held-out density, by cross-validation, judges anything that gives a
density of the same columns.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from bhclust import BayesianRoseTree, compare
from bhclust.models import DiagonalGaussian, Gaussian

iris = load_iris(as_frame=True).data
result = compare(
    {
        "diagonal": DiagonalGaussian(),
        "full": Gaussian(),
        "full, rose tree": BayesianRoseTree(Gaussian()),
    },
    iris,
    n_folds=3,
)
print(result)

fig, ax = plt.subplots(figsize=(6, 2.5), layout="constrained")
ax.barh([row.name for row in result.rows], [row.heldout for row in result.rows])
ax.set_xlabel("log density of a flower that was not fitted")
plt.show()
