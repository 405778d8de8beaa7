"""The other end of a connection: a user of this host if the kernel knows, otherwise an address.

For a Unix socket the kernel says who connected; for the loopback, whose socket the other end is.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass

from qtide.system.unix import peer_uid

LOOPBACK = ("127.", "::1", "::ffff:127.")
SOCK_DIAG, BY_FAMILY, REQUEST, ESTABLISHED = 4, 20, 1, 1
"""The kernel's own numbers (linux/sock_diag.h, linux/inet_diag.h)."""
ANY = 0xFFFFFFFF
ANSWER_AT = 16
"""Bytes of a netlink header."""


@dataclass(frozen=True)
class Peer:
    """Who is at the other end, before any token is seen."""

    name: str
    uid: int | None = None
    """The user, if it is a process of this host."""
    unix: bool = False


UNKNOWN = Peer("an unknown peer")


def peer_of(connection: socket.socket) -> Peer:
    """The peer of an accepted connection."""
    try:
        if connection.family == socket.AF_UNIX:
            user = peer_uid(connection)
            return Peer(f"uid {user}", user, unix=True)
        host = str(connection.getpeername()[0])
    except OSError:  # it has gone already
        return UNKNOWN
    uid = _loopback_uid(connection) if host.startswith(LOOPBACK) else None
    return Peer(f"address {host}") if uid is None else Peer(f"uid {uid}", uid)


def _loopback_uid(connection: socket.socket) -> int | None:
    """The owner of the other end's socket; None if the kernel does not say so for sure."""
    with (
        suppress(OSError, struct.error),
        socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, SOCK_DIAG) as kernel,
    ):
        kernel.settimeout(1.0)
        kernel.send(_question(connection))
        return _owner(kernel.recv(4096))
    return None


def _question(connection: socket.socket) -> bytes:
    """Ask for the socket whose address is our peer's, and whose peer is us."""
    (theirs, their_port), (ours, our_port) = (
        connection.getpeername()[:2],
        connection.getsockname()[:2],
    )
    family = connection.family
    addresses = [socket.inet_pton(family, each).ljust(16, b"\0") for each in (theirs, ours)]
    ports = struct.pack("!HH", their_port, our_port)
    ends = ports + b"".join(addresses) + struct.pack("=III", 0, ANY, ANY)
    body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, ANY) + ends
    return struct.pack("=IHHII", ANSWER_AT + len(body), BY_FAMILY, REQUEST, 1, 0) + body


def _owner(answer: bytes) -> int | None:
    """A socket that was closed has no owner: the kernel then says 0, which would be root."""
    _, kind = struct.unpack_from("=IH", answer)
    if kind != BY_FAMILY:
        return None
    state = answer[ANSWER_AT + 1]
    uid, inode = struct.unpack_from("=II", answer, ANSWER_AT + 4 + 48 + 12)
    return int(uid) if inode and state == ESTABLISHED else None
