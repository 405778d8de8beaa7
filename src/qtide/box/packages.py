"""The programs that a box needs, and the packages that contain them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

from qtide.errors import QtideError

DAEMON_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where distributions put daemons; an ordinary user's PATH lacks them."""

SLURM = ("munged", "slurmctld", "slurmd", "salloc", "srun", "sinfo")
ACCOUNTING = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacct", "sacctmgr")


class PackagesMissing(QtideError):  # noqa: N818 - says what is wrong
    """Programs that a box needs are not installed."""


def program(name: str) -> str:
    """The path of a program; PackagesMissing if it is not installed."""
    path = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *DAEMON_FOLDERS]))
    if path is None:
        raise PackagesMissing(_sentence([name]))
    return path


def require(*, accounting: bool) -> None:
    """Refuse with the names of all programs that are missing."""
    missing = [name for name in SLURM + ACCOUNTING * accounting if not _installed(name)]
    if missing:
        raise PackagesMissing(_sentence(missing))


def _installed(name: str) -> bool:
    try:
        return bool(program(name))
    except PackagesMissing:
        return False


def _sentence(missing: Iterable[str]) -> str:
    names = ", ".join(missing)
    return f"a box needs programs that are not installed: {names}; install them: make box-packages"
