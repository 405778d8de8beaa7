"""Accept connections, and count each one before TLS and before its first byte.

A peer is a user at the Unix socket, or an address. Once a request on a connection shows a token,
the connection counts towards that token's user, so users behind one address do not lock each other
out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qtide.core.sockets import peer_uid
from qtide.service.limits import OverLimit

log = logging.getLogger(__name__)

HANDSHAKE_LIMIT = 5.0
"""Seconds that a client has for the TLS handshake."""
PAUSE = 0.1
"""Seconds to wait before accepting again after a failure."""
LOOPBACK = ("127.", "::1", "::ffff:127.")
ESTABLISHED = "01"
"""The state of an open connection in /proc/net/tcp."""

TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\n\r\n"
    b'{"error": "too_many_connections", "message": "too many connections are open; close some"}'
)


@dataclass(frozen=True)
class Peer:
    """The other end of a connection, as known before it shows a token."""

    name: str
    uid: int | None = None
    """The user id as the kernel reports it; only for the Unix socket."""
    unix: bool = False


UNKNOWN = Peer("an unknown peer")


def peer_of(connection: socket.socket) -> Peer:
    """The peer of an accepted connection."""
    try:
        if connection.family == socket.AF_UNIX:
            user = peer_uid(connection)
            return Peer(f"uid {user}", user, unix=True)
        return Peer(f"address {connection.getpeername()[0]}")
    except OSError:  # the peer has already gone
        return UNKNOWN


def loopback_uid(connection: socket.socket) -> int | None:
    """The user at the other end of a loopback connection; None if the kernel does not say.

    Reads the kernel's whole connection table, which takes milliseconds: do not call it in the event
    loop.
    """
    try:
        theirs, ours = connection.getpeername()[:2], connection.getsockname()[:2]
    except OSError:
        return None
    if not str(theirs[0]).startswith(LOOPBACK):
        return None
    table = "/proc/net/tcp6" if connection.family == socket.AF_INET6 else "/proc/net/tcp"
    wanted = [_in_table(connection.family, *theirs), _in_table(connection.family, *ours)]
    with suppress(OSError):
        for row in Path(table).read_text().splitlines()[1:]:
            fields = row.split()
            if fields[1:3] == wanted:
                # a closed socket has no inode and appears to belong to root
                return int(fields[7]) if fields[3] == ESTABLISHED and int(fields[9]) else None
    return None


def _in_table(family: int, host: str, port: int) -> str:
    """An address as the kernel prints it: four-byte words in the machine's byte order."""
    packed = socket.inet_pton(family, host)
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, 'little'):08X}" for word in words) + f":{port:04X}"


class Accepted(asyncio.Protocol):
    """The interface of a connection that accepting and counting it needs."""

    peer: Peer
    handshake: asyncio.Task[None] | None
    """The task that runs the TLS handshake; None once it is done."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether no request on it is being answered."""

    @property
    @abstractmethod
    def held(self) -> bool:
        """Whether its only request is waiting for a task to end."""

    @abstractmethod
    def give_way(self) -> None:
        """Close it, but first answer a request that waits for a task."""

    @abstractmethod
    def shut_down(self) -> None:
        """Close it once its current requests are answered."""


class Connections:
    """The open connections, counted by peer until a request shows a token, then by user."""

    def __init__(
        self, each: int, total: int, refused: Callable[[int, str], None] = lambda *_: None
    ) -> None:
        self._each = each
        self._total = total
        self._owner: dict[Accepted, str] = {}
        self._unproven: dict[str, dict[Accepted, None]] = {}
        self._proven: dict[str, dict[Accepted, None]] = {}
        self.refused = refused
        """Called with a status and a reason for every connection refused or evicted."""

    def adopt(self, each: int, total: int) -> None:
        """Change the limits; open connections stay open."""
        self._each = each
        self._total = total

    def __iter__(self) -> Iterator[Accepted]:
        return iter(list(self._owner))

    def __len__(self) -> int:
        return len(self._owner)

    def open(self, connection: Accepted) -> bool:
        """Count a new connection, evicting another if there are too many; False if it must go."""
        name = connection.peer.name
        if len(self._unproven.get(name, ())) >= self._each and not self._evict_unproven(name):
            return False
        if len(self) >= self._total and not (
            self._evict_unproven(_largest(self._unproven))
            or self._evict_proven(_largest(self._proven))
        ):
            return False
        self._owner[connection] = name
        self._unproven.setdefault(name, {})[connection] = None
        return True

    def prove(self, connection: Accepted, user: str) -> None:
        """Count a connection towards a user from now on, since a request showed the user's token.

        If the user has too many, evict an idle one, or one that only waits for a task.
        """
        if connection not in self._owner:
            return
        if len(self._proven.get(user, ())) >= self._each and not self._evict_proven(user):
            raise OverLimit(f"{user} has {self._each} connections, as many as allowed; close some")
        self.close(connection)
        self._owner[connection] = user
        self._proven.setdefault(user, {})[connection] = None

    def close(self, connection: Accepted) -> None:
        """Stop counting a connection."""
        name = self._owner.pop(connection, None)
        if name is None:
            return
        for group in (self._unproven, self._proven):
            if connection in group.get(name, {}):
                del group[name][connection]
                if not group[name]:
                    del group[name]

    def _evict_unproven(self, name: str) -> bool:
        return self._evict(next(iter(self._unproven.get(name, ())), None))

    def _evict_proven(self, user: str) -> bool:
        """Evict the user's oldest idle connection, else the oldest that waits for a task."""
        found = self._proven.get(user, ())
        idle = next((each for each in found if each.idle), None)
        return self._evict(idle or next((each for each in found if each.held), None))

    def _evict(self, connection: Accepted | None) -> bool:
        if connection is None:
            return False
        self.close(connection)
        connection.give_way()
        self.refused(503, "gave_way")
        return True


def _largest(groups: dict[str, dict[Accepted, None]]) -> str:
    return max(groups, key=lambda name: len(groups[name]), default="")


class Acceptor:
    """Accepts the connections of one listening socket."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[socket.socket, Peer], Accepted],
        connections: Connections,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listener = listener
        self._make = make
        self._connections = connections
        self._tls = None if listener.family == socket.AF_UNIX else tls
        self._opening: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # out of file descriptors, or the peer has gone
                log.warning("connection not accepted", extra={"why": str(error)})
                await asyncio.sleep(PAUSE)
                continue
            self._admit(accepted)

    def _admit(self, accepted: socket.socket) -> None:
        """Count a connection and start its TLS handshake, or refuse it."""
        if accepted.family != socket.AF_UNIX:
            with suppress(OSError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._make(accepted, peer_of(accepted))
        if not self._connections.open(connection):
            self._connections.refused(503, "too_many_connections")
            if self._tls is None:
                with suppress(OSError):
                    accepted.setblocking(False)
                    accepted.send(TOO_MANY)
            accepted.close()
            return
        task = asyncio.get_running_loop().create_task(self._open(accepted, connection))
        connection.handshake = task
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, connection: Accepted) -> None:
        limit = HANDSHAKE_LIMIT if self._tls else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=limit,
            )
            connection.handshake = None
        except (OSError, TimeoutError, ssl.SSLError, asyncio.CancelledError) as error:
            self._connections.close(connection)
            accepted.close()
            if isinstance(error, TimeoutError | ConnectionAbortedError):
                self._connections.refused(408, "no_tls")
