"""Unix sockets: paths of any length, and trust based on the owner of their folder.

The kernel reports the user at the other end. A server is trusted if that user is root, the current
user, or the folder's owner, provided that only root could have created the folder.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qtide.core.errors import QtideError

CREDENTIALS = struct.Struct("=iII")
OTHERS_WRITE = 0o022
ROOT = 0


class Untrusted(QtideError):  # noqa: N818 - what happened
    """The server at the other end of a socket cannot be trusted."""


@contextmanager
def opened_folder(folder: Path) -> Iterator[Path]:
    """Give a folder a short path during the block: socket paths have at most 107 characters."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def peer_uid(connection: socket.socket) -> int:
    """User id of the process at the other end of a Unix socket."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _, uid, _ = CREDENTIALS.unpack(data)
    return int(uid)


def connected(path: Path, limit: float | None) -> socket.socket:
    """Connect to a trusted server; Untrusted says why it is not trusted."""
    trusted = trusted_uids(path.parent)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(limit)
        with opened_folder(path.parent) as folder:
            connection.connect(str(folder / path.name))
        _check_server(connection, path, trusted)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_server(connection: socket.socket, path: Path, trusted: set[int]) -> None:
    uid = peer_uid(connection)
    if uid not in trusted:
        raise Untrusted(f"{path} is served by the user {uid}, who does not own its folder")


def trusted_uids(folder: Path) -> set[int]:
    """User ids whose servers are trusted at a socket in this folder."""
    here, above = folder.stat(), folder.resolve().parent.stat()
    trusted = {ROOT, os.geteuid()}
    if here.st_mode & OTHERS_WRITE:
        raise Untrusted(f"others may write to {folder}, so a socket there proves nothing")
    if here.st_uid not in trusted:
        if above.st_uid != ROOT or above.st_mode & OTHERS_WRITE:
            raise Untrusted(f"{folder} belongs to the user {here.st_uid}, whom nobody vouches for")
        trusted.add(here.st_uid)
    return trusted


LOOPBACK = "127.0.0.1"


def free_ports(number: int) -> tuple[int, ...]:
    """Find `number` different free ports."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return tuple(each.getsockname()[1] for each in sockets)
    finally:
        for each in sockets:
            each.close()
