"""A real Slurm cluster on this machine with one command."""

from qtide.box.box import Status, default_folder, down, env, give_name, status, up
from qtide.box.layout import PackagesMissing

__all__ = [
    "PackagesMissing",
    "Status",
    "default_folder",
    "down",
    "env",
    "give_name",
    "status",
    "up",
]
