"""Settings that all tests share."""

from hypothesis import settings

# A busy machine must not fail a test, and a failure must come again: no deadline, fixed examples.
settings.register_profile("bhclust", deadline=None, derandomize=True)
settings.load_profile("bhclust")
