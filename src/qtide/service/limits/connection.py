"""One HTTP connection: uvicorn's, with limits on its head, its pace and what waits to be read.

uvicorn limits none of these with its fast parser, so this adds them where the bytes come in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Protocol

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from qtide.service.limits.connections import Connections
from qtide.service.limits.peer import UNKNOWN, Peer, peer_of
from qtide.service.limits.settings import Limits

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


class Settings(Protocol):
    """What a connection is limited by."""

    @property
    def limits(self) -> Limits:
        """Its limits."""

    @property
    def most_bytes(self) -> int:
        """The largest request."""


def limited(current: Callable[[], Settings], connections: Connections) -> Callable[..., Connection]:
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
