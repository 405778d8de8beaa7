"""Published tables and figures, made again: published, measured and simulated side by side."""
