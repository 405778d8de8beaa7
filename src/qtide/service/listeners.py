"""Where the service listens: its port, and a Unix socket by which clients of its host know it.

Systemd may hold both sockets (`LISTEN_FDS`): then nobody can take the port while the service is
away, and clients wait instead of failing.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from qtide.errors import QtideError
from qtide.service.configuration import Configuration
from qtide.system.unix import opened_folder

BACKLOG = 1024
FIRST_INHERITED = 3


def listeners(configuration: Configuration) -> list[socket.socket]:
    """The sockets to serve on, the port first."""
    inherited = _inherited()
    found = [each for each in inherited if each.family != socket.AF_UNIX]
    found = found or [_port(configuration)]
    unix = [each for each in inherited if each.family == socket.AF_UNIX]
    try:
        return [*found, *(unix or [_unix(configuration.unix_socket)])]
    except BaseException:
        for each in found:
            each.close()
        raise


def _inherited() -> list[socket.socket]:
    """What systemd opened for this process."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    number = int(os.environ.get("LISTEN_FDS", "0"))
    found = [socket.socket(fileno=FIRST_INHERITED + each) for each in range(number)]
    for each in found:
        each.setblocking(False)
        os.set_inheritable(each.fileno(), False)
    return found


def _port(configuration: Configuration) -> socket.socket:
    """Bind the socket first: early clients wait, and a second service fails at once."""
    family = socket.AF_INET6 if ":" in configuration.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on a socket whose protocol is TCP
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((configuration.host, configuration.port))
    except OSError as error:
        listener.close()
        raise QtideError(f"cannot listen on {configuration.listen}: {error.strerror}") from None
    listener.listen(BACKLOG)
    return listener


def _unix(path: Path) -> socket.socket:
    """A socket in a folder that only we write to; the one that an earlier service left goes."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened_folder(path.parent) as folder:  # paths of sockets may only be short
            place = folder / path.name
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK(place.lstat().st_mode):
                    place.unlink()
            listener.bind(str(place))
            place.chmod(0o666)  # whoever reaches it still needs a token
    except OSError as error:
        listener.close()
        raise QtideError(f"cannot listen on {path}: {error.strerror}") from None
    listener.listen(BACKLOG)
    return listener
