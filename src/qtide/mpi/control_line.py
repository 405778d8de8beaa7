"""One end of a control connection: messages as lines of JSON."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

Message = dict[str, Any]

MESSAGE_BYTES = 2**22
"""The longest line accepted from a member."""
SILENCE = 5
"""Seconds after which an unresponsive host counts as gone."""


class ControlLine:
    """One end of a control connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb")
        self._writing = threading.Lock()
        option = connection.setsockopt
        option(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        option(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        option(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENCE - 1)
        option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENCE)

    def send(self, message: Message) -> None:
        """Send a message; a closed connection is ignored here, as it ends `messages`."""
        with suppress(OSError), self._writing:
            self._connection.sendall(json.dumps(message, ensure_ascii=False).encode() + b"\n")

    def messages(self, longest: int = MESSAGE_BYTES) -> Iterator[Message]:
        """Yield messages until the other end is gone or sends anything else."""
        # deeply nested brackets raise RecursionError
        with suppress(OSError, ValueError, RecursionError):
            while line := self._file.readline(longest + 1):
                message = json.loads(line) if len(line) <= longest else None
                if not isinstance(message, dict):
                    return
                yield message

    def end(self) -> None:
        """Let `messages` end after those that have come."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Close the connection; the other end notices immediately."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
