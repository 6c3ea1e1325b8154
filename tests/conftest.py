"""Settings that all tests share."""

import os

from hypothesis import settings

# SciPy reads this when it is first imported; without it scikit-learn skips one of its checks.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# Pictures are drawn without a screen.
os.environ.setdefault("MPLBACKEND", "Agg")

# A busy machine must not fail a test, and a failure must come again: no deadline, fixed examples.
settings.register_profile("bhclust", deadline=None, derandomize=True)
settings.load_profile("bhclust")
