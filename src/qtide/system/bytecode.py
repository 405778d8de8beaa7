"""Compiled modules on this computer's own disk, where Python could not keep them beside the source.

Python compiles modules again at every start if their folder is read-only, if whoever installed them
compiled nothing, or if PYTHONDONTWRITEBYTECODE is set. That takes most of the time of an import.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import sys
from pathlib import Path

FOLDER = Path("/var/tmp")
"""Not TMPDIR, which often lasts no longer than a Slurm job."""
LEAST_FREE = 2**28
"""Bytes of free disk: where a file does not fit, Python keeps its beginning as if it were whole."""


def keep_bytecode() -> None:
    """Use a cache of our own, unless this module, as an example, is compiled in its place."""
    cached = __spec__.cached if __spec__ else None
    if cached is None or Path(cached).exists() or sys.pycache_prefix is not None:
        return
    folder = FOLDER / f"qtide-bytecode-{os.getuid()}"
    if _ours(folder) and _has_room(folder):
        sys.pycache_prefix, sys.dont_write_bytecode = str(folder), False


def _has_room(folder: Path) -> bool:
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    return unlimited and shutil.disk_usage(folder).free > LEAST_FREE


def _ours(folder: Path) -> bool:
    """Whether the folder is there, and nobody else can write to it: it holds code."""
    try:
        folder.mkdir(0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    safe = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return safe and found.st_uid == os.getuid()
