"""Site models: parameters, batch scheduler and workloads."""
