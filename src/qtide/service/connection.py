"""One HTTP connection: uvicorn's, with limits on its head, its pace and what waits to be read.

uvicorn limits none of these with its fast parser, so this adds them where the bytes come in.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from qtide.core.sockets import peer_uid
from qtide.service.limits import Limits

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


class Closable(Protocol):
    """A connection, as far as it matters here."""

    @property
    def peer_name(self) -> str:
        """Whose it is."""

    def give_way(self) -> None:
        """Close at once."""

    def look(self, now: float) -> None:
        """End it if its time is up."""


class Connections:
    """The open connections by peer."""

    def __init__(
        self, each: int, total: int, refused: Callable[[int, str], None] = lambda *_: None
    ) -> None:
        self._each = each
        self._total = total
        self._open: Counter[str] = Counter()
        self._unproven: dict[str, dict[Closable, None]] = {}
        self._all: dict[Closable, None] = {}
        self.refused = refused
        """Told of every connection that is refused or ended, with a status and a word."""

    def adopt(self, each: int, total: int) -> None:
        """Allow other numbers from now on; those that are open stay."""
        self._each = each
        self._total = total

    def __iter__(self) -> Iterator[Closable]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def open(self, connection: Closable) -> bool:
        """Whether a new connection may stay; if there are too many, an idle one gives way."""
        name = connection.peer_name
        if self._open[name] >= self._each and not self._evict(name):
            return False
        if len(self._all) >= self._total and not self._evict(self._largest()):
            return False
        self._all[connection] = None
        self._open[name] += 1
        self._unproven.setdefault(name, {})[connection] = None
        return True

    def prove(self, connection: Closable) -> None:
        """It showed a valid token: it no longer gives way."""
        self._unproven.get(connection.peer_name, {}).pop(connection, None)

    def close(self, connection: Closable) -> None:
        """It is closed."""
        if connection not in self._all:
            return
        del self._all[connection]
        name = connection.peer_name
        self._open[name] -= 1
        self.prove(connection)
        if not self._open[name]:
            del self._open[name]
            self._unproven.pop(name, None)

    def _largest(self) -> str:
        """The peer with the most connections that may give way."""
        return max(self._unproven, key=lambda name: len(self._unproven[name]), default="")

    def _evict(self, name: str) -> bool:
        for oldest in self._unproven.get(name, {}):
            self.close(oldest)
            oldest.give_way()
            self.refused(503, "gave_way")
            return True
        return False


KEY = "qtide.connection"
"""Where a request's scope has its connection."""
MOST_FIELDS = 100
"""Of a request's head, and of the trailers after its body."""
SWALLOWED = 64 * 1024
"""Bytes of a refused request that are read after the answer, so that its sender gets to read it."""
LINGER = 1.0
"""Seconds for which a refused connection is still open: its peer reads the answer, and cannot come
again at once."""
SWEEP = 1.0
"""Seconds between two looks for connections whose time is up."""


class HeadTooLong(Exception):  # noqa: N818 - what happened
    """The head or the trailers of a request have too many fields or bytes."""


class Connection(HttpToolsProtocol):
    """A connection that is ended if it sends too much, or too slowly, or does not read."""

    peer: Peer = UNKNOWN

    def __init__(
        self,
        limits: Limits,
        connections: Connections,
        most_bytes: int,
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._counted = connections
        self._most = 2 * most_bytes + limits.header_bytes
        self._received = 0
        self._fields = 0
        self._in_head = True
        self._proven = False
        self._refused = False
        self._due: float | None = None
        self._end: float | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def peer_name(self) -> str:
        """Whose connection it is."""
        return self.peer.name

    @property
    def _idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def prove(self) -> None:
        """A request on it showed a valid token."""
        if not self._proven:
            self._proven = True
            self._counted.prove(self)

    def hung_up(self) -> asyncio.Future[None]:
        """Resolved if the peer goes before it has its answer."""
        gone = self.loop.create_future()
        if self.parser is None:  # it has gone already
            gone.set_result(None)
        else:
            self._waiting.append(gone)
        return gone

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Count it by its peer, or refuse it."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        self.peer = UNKNOWN if connection is None else peer_of(connection)
        if self._counted.open(self):
            self._expect(self._limits.header_seconds)
        else:
            self._refuse(503, "too_many_connections", "too many connections are open; close some")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._counted.close(self)
        super().connection_lost(exc)
        for gone in self._waiting:
            if not gone.done():
                gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on, unless there are too many."""
        self._received += len(data)
        if self.parser is None or self._refused or self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            if self._received > self._limits.header_bytes:
                self._refuse(431, "head_too_long", "the head of the request is too long")
        elif self._received > self._most:
            self._refuse(413, "too_large", "the request is too large; send less at once")
        elif self._end is not None:  # it makes progress
            self._due = min(self._end, self.loop.time() + self._limits.stalled_seconds)
        if self._in_head and self._due is None and self._idle:  # bytes that begin no request
            self._expect(self._limits.header_seconds)

    def on_message_begin(self) -> None:
        """A request begins: its head has to be here soon."""
        super().on_message_begin()
        self.scope[KEY] = self  # type: ignore[literal-required]  # a key of our own
        self._fields = 0
        self._expect(self._limits.header_seconds)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the head, or of the trailers."""
        self._fields += 1
        if self._fields > MOST_FIELDS:
            raise HeadTooLong
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is here: now the body has its time."""
        head = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if head > self._limits.header_bytes:
            raise HeadTooLong
        self._in_head = False
        self._received = 0
        self._expect(self._limits.body_seconds)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body; what comes after a refusal is dropped, and not for long."""
        super().on_body(body)
        most = self._most if self._proven else SWALLOWED
        if self.cycle.response_complete and self._received > most:
            self.transport.abort()

    def on_message_complete(self) -> None:
        """The request is here: as long as we work on it, the peer need not send anything."""
        super().on_message_complete()
        self._in_head = True
        self._received = 0
        self._due = self._end = None

    def on_response_complete(self) -> None:
        """The answer is sent; the rest of a request that was refused early comes soon or never."""
        self._waiting.clear()
        super().on_response_complete()
        if not self._in_head:
            self._expect(self._limits.stalled_seconds)

    def pause_writing(self) -> None:
        """The peer does not read as fast as we answer."""
        super().pause_writing()
        self._due = self.loop.time() + self._limits.stalled_seconds

    def resume_writing(self) -> None:
        """It has read on."""
        super().resume_writing()
        self._due = self._end

    def send_400_response(self, msg: str) -> None:
        """What the parser does not take: most often no HTTP at all, or a head that is too long."""
        if self._fields > MOST_FIELDS or self._received > self._limits.header_bytes:
            self._refuse(431, "head_too_long", "the head of the request is too long")
        else:
            self._refuse(400, "no_http", "this is not an HTTP request")

    def look(self, now: float) -> None:
        """End it if its time is up."""
        if self._due is None or now < self._due:
            return
        if self.flow is not None and self.flow.write_paused:
            self._counted.refused(408, "slow_reader")
            self.transport.abort()
        elif self.cycle is not None and self.cycle.response_started:
            self.transport.abort()
        else:
            self._refuse(408, "too_slow", "the request did not arrive in time; send it again")

    def give_way(self) -> None:
        """Close at once, for another connection of the same peer."""
        self.transport.abort()

    def _expect(self, seconds: float) -> None:
        self._end = self.loop.time() + seconds
        self._due = min(self._end, self.loop.time() + self._limits.stalled_seconds)

    def _refuse(self, status: int, error: str, message: str) -> None:
        """Answer without the application, read no more, and close a little later."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._counted.refused(status, error)
        self._due = self._end = None
        self.transport.write(_answer(status, error, message))
        if status == 503:  # there are too many connections already
            self.transport.close()
        else:
            self.transport.pause_reading()
            self.loop.call_later(LINGER, self.transport.abort)


def _answer(status: int, error: str, message: str) -> bytes:
    body = json.dumps({"error": error, "message": message}).encode()
    retry = b"retry-after: 1\r\n" if status == 503 else b""
    length = b"content-length: %d\r\n" % len(body)
    fields = (b"content-type: application/json\r\n", length, retry, b"connection: close\r\n\r\n")
    return b"".join((STATUS_LINE[status], *fields, body))


class ConnectionSettings(Protocol):
    """What a connection is limited by."""

    @property
    def limits(self) -> Limits:
        """Its limits."""

    @property
    def most_bytes(self) -> int:
        """The largest request."""


def limited(
    current: Callable[[], ConnectionSettings], connections: Connections
) -> Callable[..., Connection]:
    """What makes the connections of a server, each limited as the service is at that time."""

    def make(**words: Any) -> Connection:
        settings = current()
        return Connection(settings.limits, connections, settings.most_bytes, **words)

    return make


async def sweep(connections: Connections) -> None:
    """End connections whose time is up, for as long as the service runs."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP)
        now = loop.time()
        for connection in connections:
            connection.look(now)
