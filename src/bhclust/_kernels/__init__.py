"""Compiled fast paths for the exact search: the same answers as the NumPy engine, sooner."""
