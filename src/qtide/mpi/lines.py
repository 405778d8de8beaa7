"""Lines between the root of a job and its other members: words as JSON, one per line, over TCP.

MPI does not tell when a process is gone; a connection does, at once. So each member has one to the
root, over which it also hears what became of the others.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

Word = dict[str, Any]

SILENCE = 5
"""Seconds after which a host that no longer answers counts as gone."""


class Line:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._writing = threading.Lock()
        option = connection.setsockopt
        option(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        option(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        option(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENCE - 1)
        option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENCE)

    def say(self, word: Word) -> None:
        """Send a word; who listens at the other end notices by itself that the line is cut."""
        with suppress(OSError), self._writing:
            self._connection.sendall(json.dumps(word).encode() + b"\n")

    def words(self) -> Iterator[Word]:
        """What the other end says, until it is gone."""
        with suppress(OSError, ValueError), self._connection.makefile("rb") as lines:
            for line in lines:
                yield json.loads(line)

    def cut(self) -> None:
        """Close it: the other end notices at once."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def end_at_once(code: int) -> NoReturn:
    """End this process, whatever its other threads are doing."""
    os._exit(code)
