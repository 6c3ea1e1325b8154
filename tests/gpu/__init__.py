"""A processor that stands in for a graphics processor."""
