"""For tests, benchmarks and notebooks: real parts of qtide that can be started and thrown away."""
