"""A real Slurm cluster on this machine with one command."""

from qtide.clusters.slurm.box.box import Status, default_folder, down, env, status, up
from qtide.clusters.slurm.box.packages import PackagesMissing

__all__ = ["PackagesMissing", "Status", "default_folder", "down", "env", "status", "up"]
