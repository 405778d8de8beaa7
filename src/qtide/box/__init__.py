"""A real Slurm cluster on this machine with one command."""

from qtide.box.box import Status, default_folder, down, env, give_name, status, up
from qtide.box.release import INSTALLED, RELEASES, PackagesMissing

__all__ = [
    "INSTALLED",
    "RELEASES",
    "PackagesMissing",
    "Status",
    "default_folder",
    "down",
    "env",
    "give_name",
    "status",
    "up",
]
