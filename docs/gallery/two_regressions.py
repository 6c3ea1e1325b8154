"""
Two curves through one cloud
============================

Points of two sine waves, one above the other, not told apart. A cluster is a Gaussian process of
the output over the input, and may hold a part of a wave. The tree gives the density of the output
at any input, with two ridges where there are two answers.
"""

import matplotlib.pyplot as plt
import numpy as np

from bhclust import BayesianRoseTree, plots
from bhclust.models import GaussianProcessExpert
from bhclust.regression import conditional

rng = np.random.default_rng(0)
x = rng.uniform(0, 6, size=80)
y = np.sin(x) + 2.0 * (np.arange(80) % 2) + 0.1 * rng.normal(size=80)
# A narrow prior of the inputs says that curves run over most of them.
model = GaussianProcessExpert(
    length_scale=1.5, noise=0.1, strength=50, dof=500, scale=498 * x.var()
)
fitted = BayesianRoseTree(model, gamma=0.02).fit(np.column_stack([x, y]))
at_three = conditional(fitted.tree_, fitted.model_, fitted.mixing_, [[3.0]])
low, high = at_three.quantile(0.1)[0], at_three.quantile(0.9)[0]
print(f"output at 3: mean {at_three.expectation()[0]:.2f}, though hardly a point is near it;")
print(f"a tenth is below {low:.2f}, a tenth above {high:.2f}")

plots.regression(fitted)
plt.show()
