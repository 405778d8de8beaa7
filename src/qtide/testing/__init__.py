"""For tests, benchmarks and notebooks: real parts of qtide that may be put up and thrown away."""
