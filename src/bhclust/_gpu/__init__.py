"""The search and prediction on a graphics processor."""
