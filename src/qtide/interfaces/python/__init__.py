"""Programs, runs and comparisons as Python objects."""
