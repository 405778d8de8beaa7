"""Clusters: local, simulated and Slurm."""
