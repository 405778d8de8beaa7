"""Connections of the client: by the network, or by a Unix socket whose server is proved."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from qtide.system.unix import connected

LOCAL = "http://localhost"
"""What a request by a Unix socket names as its host."""


class UnixConnection(HTTPConnection):
    """A connection to a Unix socket."""

    path: Path

    def _new_conn(self) -> socket.socket:
        limit = self.timeout if isinstance(self.timeout, int | float) else None
        try:
            return connected(self.path, limit)
        except OSError as error:
            raise urllib3.exceptions.NewConnectionError(self, f"{error.strerror}") from None


class UnixPool(HTTPConnectionPool):
    """Connections to one Unix socket."""

    def __init__(self, path: Path, **words: Any) -> None:
        super().__init__("localhost", **words)
        self.ConnectionCls = type("Here", (UnixConnection,), {"path": path})
