"""Slurm: its commands, the companions that hold nodes and QPUs, and the cluster made of them."""
