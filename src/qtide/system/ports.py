"""Ports of the loopback that are free."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_ports(number: int) -> tuple[int, ...]:
    """This many different ones."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return tuple(each.getsockname()[1] for each in sockets)
    finally:
        for each in sockets:
            each.close()
