"""Files that others rely on: locking, atomic writes, secrets."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import stat
import sys
from pathlib import Path
from secrets import token_hex
from typing import Any

from qtide.core.errors import QtideError, UsageError

SECRET = 0o600


class Locked(Exception):  # noqa: N818 - what happened
    """Another process holds the lock."""


class Damaged(QtideError):  # noqa: N818 - what happened
    """A file does not contain what was written to it."""


def lock(handle: int, *, shared: bool = False) -> None:
    """Lock an open file until it is closed or this process dies; raise Locked if taken."""
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Locked from None


def write_whole(file: Path, data: bytes | memoryview, mode: int | None = None) -> None:
    """Write a draft and rename it, so that readers see the old or the new content, never a part.

    Without a mode, the user's umask decides. A secret is never readable by others: the draft has
    its mode before its first byte.
    """
    draft = file.with_name(f".{file.name}.{token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644 if mode is None else SECRET)
    try:
        with os.fdopen(handle, "wb") as opened:
            if mode is not None:
                os.fchmod(handle, mode)
            opened.write(data)
            opened.flush()
            os.fsync(handle)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def check_own(path: Path, advice: str) -> None:
    """Refuse a path that others own or can write: using it could run their code."""
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{path} belongs to another user (uid {found.st_uid}); {advice}")
    if found.st_mode & stat.S_IWOTH:
        raise UsageError(f"{path} can be written by everybody; take that right away: chmod o-w")
    if found.st_mode & stat.S_IWGRP and not _private_group(found.st_gid):
        raise UsageError(f"{path} can be written by its group; take that right away: chmod g-w")


def _private_group(number: int) -> bool:
    """Whether a group has this user as its only member, as on systems whose umask is 002."""
    import grp  # seldom needed
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    own = number == user.pw_gid and group.gr_name == user.pw_name
    return own and set(group.gr_mem) <= {user.pw_name}


def read_regular(file: Path) -> bytes:
    """Read a file, unless a pipe or device is in its place: such a read might never end."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as opened:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Damaged(f"{file} cannot be read: it is not a regular file")
        return opened.read()


def write_json(file: Path, value: dict[str, Any]) -> None:
    """Write an object as JSON, atomically."""
    import json  # imported here so that an agent starts faster

    write_whole(file, (json.dumps(value, indent=2) + "\n").encode())


def is_there(file: Path) -> bool:
    """Whether a file exists; False in a home that `su` left in HOME, and that we may not enter."""
    try:
        return file.exists()
    except PermissionError:
        return False


def read_json(file: Path) -> dict[str, Any]:
    """Read an object by `write_json`; raise Damaged if unreadable, FileNotFoundError if missing."""
    import json

    try:
        found = json.loads(read_regular(file))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise Damaged(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise Damaged(f"{file} cannot be read: it contains no JSON object")
    return found


def state_folder() -> Path:
    """Folder for state that outlives a process: services' stores, boxes."""
    return _base("XDG_STATE_HOME", "~/.local/state")


def config_folder() -> Path:
    """Folder of the user's configuration, for all folders."""
    return _base("XDG_CONFIG_HOME", "~/.config")


def cache_folder() -> Path:
    """Folder for what can be fetched or computed again."""
    return _base("XDG_CACHE_HOME", "~/.cache")


def _base(variable: str, otherwise: str) -> Path:
    return Path(os.environ.get(variable) or otherwise).expanduser() / "qtide"


FOLDER = Path("/var/tmp")
"""Parent of the bytecode cache; not TMPDIR, which often lasts only as long as a Slurm job."""
LEAST_FREE = 2**28
"""Minimum free disk bytes: on a full disk, Python keeps truncated files as if complete."""


def keep_bytecode() -> None:
    """Use our own bytecode cache unless this module's bytecode is in its usual place."""
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
    """Create the folder if needed; whether only this user can access it, as it holds code."""
    try:
        folder.mkdir(0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    safe = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return safe and found.st_uid == os.getuid()
