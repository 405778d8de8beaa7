"""Clusters: local, simulated and slurm are siblings."""
