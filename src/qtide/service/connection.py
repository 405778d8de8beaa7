"""One HTTP/1.1 connection, which parses requests, runs the application, and enforces limits.

It limits the head of a request, the pace of its sender and the bytes waiting to be read, where they
come in. It parses with httptools, through its public interface.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message, Scope

from qtide.service.acceptor import Accepted, Connections, Peer, loopback_uid
from qtide.service.limits import Limits

log = logging.getLogger(__name__)

KEY = "qtide.connection"
"""The key of the connection in a request's scope."""
MOST_FIELDS = 100
"""Maximum number of fields in a request's head and the trailers after its body."""
MOST_PIPELINED = 64
"""Maximum number of unanswered requests on a connection. Each takes a kB, and thousands arrive at
once, from anybody."""
SWALLOWED = 64 * 1024
"""Bytes of a refused request to read after the answer, so that its sender can read the answer."""
MOST_UNREAD = 64 * 1024
"""Bytes of a body, not yet taken by the application, beyond which reading pauses."""
LINGER = 1.0
"""Seconds to keep a refused connection open, so that its peer reads the answer and cannot return
at once."""
KEEP_ALIVE = 5.0
"""Seconds that a connection may stay idle after a request."""
LOOK = 1.0
"""Seconds between two checks of whether a connection's time is up."""
FAILED = b"Internal Server Error"


class ConnectionSettings(Protocol):
    """The settings that limit a connection."""

    @property
    def limits(self) -> Limits:
        """Its limits."""

    @property
    def most_bytes(self) -> int:
        """Maximum bytes of a request."""


@dataclass
class Serving:
    """What answers requests now, and by which settings; both may change while the service runs."""

    app: ASGIApp
    settings: ConnectionSettings


class HeadTooLong(Exception):  # noqa: N818 - named after what happened
    """The head or the trailers of a request have too many fields or bytes."""


class TooManyAtOnce(Exception):  # noqa: N818 - named after what happened
    """Requests were sent without waiting for the answers to others."""


class Connection(Accepted):
    """A connection that ends if its peer sends too much or too slowly, or does not read."""

    def __init__(
        self,
        serving: Serving,
        connections: Connections,
        accepted: socket.socket,
        peer: Peer,
    ) -> None:
        self.peer = peer
        self.handshake: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.loop = asyncio.get_running_loop()
        self.writable = asyncio.Event()
        self.writable.set()
        self._serving = serving
        self._limits = serving.settings.limits
        self._connections = connections
        self._accepted = accepted
        self._most = 2 * serving.settings.most_bytes + self._limits.header_bytes
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._url = b""
        self._exchanges: deque[Exchange] = deque()
        """Unanswered requests; only the first is being processed."""
        self._receiving: Exchange | None = None
        """The request whose body is being received."""
        self._received = self._fields = 0
        self._in_head = True
        self._served = self._refused = self._closing = False
        self._user: str | None = None
        self._held: asyncio.Future[Any] | None = None
        self._hung_up: list[asyncio.Future[None]] = []
        self._due: float | None = None
        self._end: float | None = None
        self._looking: asyncio.TimerHandle | None = None

    # What the application uses

    def prove(self, user: str) -> None:
        """Count it towards a user, since a request on it showed the user's valid token."""
        if self._user != user:
            self._connections.prove(self, user)
            self._user = user

    def hung_up(self) -> asyncio.Future[None]:
        """A future that resolves if the peer leaves before it has its answer."""
        gone = self.loop.create_future()
        if self.transport is None or self.transport.is_closing():
            gone.set_result(None)
        else:
            self._hung_up.append(gone)
        return gone

    def hold(self, waiting: asyncio.Future[Any] | None) -> None:
        """Set the future that its request waits for, a task's end; None when it stops waiting."""
        self._held = waiting

    async def local_uid(self) -> int | None:
        """The user at the other end, if it is a process on this host and the kernel says so."""
        if self.peer.uid is not None:
            return self.peer.uid
        return await asyncio.to_thread(loopback_uid, self._accepted)

    # What `Connections` uses

    @property
    def idle(self) -> bool:
        """Whether no request on it is being answered."""
        return not self._exchanges

    @property
    def held(self) -> bool:
        """Whether its only request is waiting for a task to end."""
        return self._held is not None and len(self._exchanges) == 1

    def give_way(self) -> None:
        """Close it, but first answer a request that waits for a task with the task's state."""
        if self._held is not None and self._exchanges:
            self._exchanges[0].keep_alive = False
            self._held.cancel()
        elif self.handshake is not None:
            self.handshake.cancel()
        elif self.transport is not None:
            self.transport.abort()

    def shut_down(self) -> None:
        """Close it once its current requests are answered, since the service stops."""
        self._closing = True
        for exchange in self._exchanges:
            exchange.keep_alive = False
        if self.idle and self.transport is not None:
            self.transport.close()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to expect a request."""
        self.transport = cast("asyncio.Transport", transport)
        self._expect(self._limits.header_seconds)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up, and tell everything that waits that the peer has gone."""
        self._connections.close(self)
        if self._looking is not None:
            self._looking.cancel()
        self.writable.set()
        for exchange in self._exchanges:
            exchange.disconnect()
        for gone in self._hung_up:
            if not gone.done():
                gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes, unless there are too many."""
        assert self.transport is not None
        self._received += len(data)
        if self._refused or self.transport.is_closing():
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the peer proposed another protocol; we stay with this one
        except httptools.HttpParserError:
            self._refuse_unparsed()
            return
        if self._in_head:
            if self._received > self._limits.header_bytes:
                self._refuse(431, "head_too_long", "the head of the request is too long")
            elif self._due is None and self.idle:  # these bytes begin no request
                self._expect(self._limits.header_seconds)
        elif self._received > self._most:
            self._refuse(413, "too_large", "the request is too large; send less at once")
        elif self._end is not None:  # the request makes progress
            self._due = min(self._end, self.loop.time() + self._limits.stalled_seconds)

    def pause_writing(self) -> None:
        """Pause answers, because the peer reads too slowly."""
        self.writable.clear()
        self._due = self.loop.time() + self._limits.stalled_seconds

    def resume_writing(self) -> None:
        """Resume answers, because the peer has read on."""
        self.writable.set()
        self._due = self._end

    def _refuse_unparsed(self) -> None:
        """Say why the parser stopped, which may be our own doing."""
        if len(self._exchanges) == MOST_PIPELINED:
            self._refuse(429, "pipelined", "read the answers before you send more requests")
        elif self._fields > MOST_FIELDS or self._received > self._limits.header_bytes:
            self._refuse(431, "head_too_long", "the head of the request is too long")
        else:
            self._refuse(400, "no_http", "this is not an HTTP request")

    def _look(self) -> None:
        """End the connection if its time is up; schedule the next check."""
        assert self.transport is not None
        self._looking = self.loop.call_later(LOOK, self._look)
        if self._due is None or self.loop.time() < self._due:
            return
        if not self.writable.is_set():
            self._connections.refused(408, "slow_reader")
            self.transport.abort()
        elif self._exchanges and self._exchanges[0].started:
            self.transport.abort()
        elif self._served and self.idle and not self._received:
            self.transport.close()
        else:
            self._refuse(408, "too_slow", "the request did not arrive in time; send it again")

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin a request, and set the deadline of its head."""
        self._url, self._headers, self._fields = b"", [], 0
        self._expect(self._limits.header_seconds)

    def on_url(self, url: bytes) -> None:
        """Add a part of its URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a field of the head or the trailers."""
        self._fields += 1
        if self._fields > MOST_FIELDS:
            raise HeadTooLong
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Start the exchange, and set the deadline of the body."""
        head = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
        if head > self._limits.header_bytes:
            raise HeadTooLong
        if len(self._exchanges) == MOST_PIPELINED:
            raise TooManyAtOnce
        self._in_head = False
        self._received = 0
        self._expect(self._limits.body_seconds)
        parsed = httptools.parse_url(self._url)
        version = self._parser.get_http_version()
        path = (parsed.path or b"/").decode("ascii")
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "scheme": "https" if self._over_tls else "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": parsed.path,
            "query_string": parsed.query or b"",
            "root_path": "",
            "headers": self._headers,
            "client": None,
            "server": None,
            KEY: self,
        }
        keep = version != "1.0" and self._parser.should_keep_alive() and not self._closing
        exchange = self._receiving = Exchange(self, scope, keep_alive=keep)
        self._exchanges.append(exchange)
        if len(self._exchanges) == 1:
            exchange.start(self._serving.app)
        elif self.transport is not None:
            self.transport.pause_reading()  # until the previous request is answered

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body; after an early answer, drop it, up to a limit."""
        exchange = self._receiving
        assert exchange is not None
        assert self.transport is not None
        if exchange.complete:
            if self._received > (self._most if self._user else SWALLOWED):
                self.transport.abort()
        elif exchange.receive_part(body) > MOST_UNREAD:
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        """End the request; the peer need not send anything while we process it."""
        assert self._receiving is not None
        self._receiving.receive_end()
        self._receiving = None
        self._in_head = True
        self._received = 0
        self._due = self._end = None
        if self.idle:
            self._expect_next()

    # What an exchange calls

    def resume_reading(self) -> None:
        """Read on, because the application wants more of the body."""
        assert self.transport is not None
        pipelined = len(self._exchanges) > 1  # then answer the previous request first
        if not (pipelined or self._refused or self.transport.is_closing()):
            self.transport.resume_reading()

    def exchange_ended(self, exchange: Exchange) -> None:
        """Go on with the next request after an answer was sent."""
        assert self.transport is not None
        self._exchanges.remove(exchange)
        self._hung_up.clear()
        self._served = True
        if not exchange.keep_alive:
            self.transport.close()
        if self.transport.is_closing():
            return
        if self._exchanges:
            self._exchanges[0].start(self._serving.app)
            self.resume_reading()
        elif self._in_head:
            self.resume_reading()
            self._expect_next()
        else:  # the rest of a request refused early comes soon or never
            self.resume_reading()
            self._expect(self._limits.stalled_seconds)

    @property
    def _over_tls(self) -> bool:
        return self.transport is not None and bool(self.transport.get_extra_info("sslcontext"))

    def _expect(self, seconds: float) -> None:
        self._end = self.loop.time() + seconds
        self._due = min(self._end, self.loop.time() + self._limits.stalled_seconds)

    def _expect_next(self) -> None:
        """Set the deadline of the next request, which may never come."""
        self._end = self._due = self.loop.time() + KEEP_ALIVE

    def _refuse(self, status: int, error: str, message: str) -> None:
        """Answer without the application, stop reading, and close a little later."""
        assert self.transport is not None
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._connections.refused(status, error)
        self._due = self._end = None
        body = json.dumps({"error": error, "message": message}).encode()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())
            + b"content-type: application/json\r\nconnection: close\r\n"
            + b"content-length: %d\r\n\r\n" % len(body)
            + body
        )
        self.transport.pause_reading()
        self.loop.call_later(LINGER, self.transport.abort)


class Exchange:
    """One request and its answer, as an ASGI application receives and sends them."""

    def __init__(self, connection: Connection, scope: Scope, *, keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.started = False
        """Whether the head of the answer has been sent."""
        self.complete = False
        self._connection = connection
        self._scope = scope
        self._body = bytearray()
        self._more = True
        self._changed = asyncio.Event()
        self._disconnected = False
        self._continue = (b"expect", b"100-continue") in scope["headers"]
        self._chunked = False
        self._task: asyncio.Task[None] | None = None

    def start(self, app: ASGIApp) -> None:
        """Have the application answer it."""
        self._task = self._connection.loop.create_task(self._run(app))

    def receive_part(self, body: bytes) -> int:
        """Add a part of the body; return how many bytes the application has yet to take."""
        self._body += body
        self._changed.set()
        return len(self._body)

    def receive_end(self) -> None:
        """Mark the request as fully received."""
        self._more = False
        self._changed.set()

    def disconnect(self) -> None:
        """Tell the application that the peer has gone."""
        self._disconnected = True
        self._changed.set()

    async def _run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        except Exception:
            log.exception("request failed")
        if self._disconnected or self.complete:
            return
        self.keep_alive = False
        if self.started:  # its length or missing last chunk tells the client it is cut
            self.complete = True
            self._connection.exchange_ended(self)
            return
        fields = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(FAILED))]
        await self._send({"type": "http.response.start", "status": 500, "headers": fields})
        await self._send({"type": "http.response.body", "body": FAILED})

    async def _receive(self) -> Message:
        transport = self._connection.transport
        assert transport is not None
        if self._continue and not self.started and not transport.is_closing():
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._continue = False
        if not self._disconnected and not self.complete:
            self._connection.resume_reading()
            await self._changed.wait()
            self._changed.clear()
        if self._disconnected or self.complete:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self._more}

    async def _send(self, message: Message) -> None:
        await self._connection.writable.wait()
        if self._disconnected or self.complete:
            return
        if message["type"] == "http.response.start":
            self._send_head(message)
        elif message["type"] == "http.response.body":
            self._send_body(message.get("body", b""), more=message.get("more_body", False))

    def _send_head(self, message: Message) -> None:
        self.started = True
        status: int = message["status"]
        parts = [b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())]
        has_length = False
        for name, value in message.get("headers", ()):
            if b"\n" in name or b"\n" in value or b"\r" in value:
                raise ValueError("a field of an answer has a line break")
            has_length |= name == b"content-length"
            parts += name, b": ", value, b"\r\n"
        self._chunked = not has_length and status not in (204, 304)
        if self._chunked:
            parts.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        self._write(b"".join(parts))

    def _send_body(self, body: bytes, *, more: bool) -> None:
        if self._scope["method"] != "HEAD":
            if self._chunked:
                part = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
                self._write(part if more else part + b"0\r\n\r\n")
            elif body:
                self._write(body)
        if not more:
            self.complete = True
            self._changed.set()
            self._connection.exchange_ended(self)

    def _write(self, data: bytes) -> None:
        transport = self._connection.transport
        assert transport is not None
        with suppress(RuntimeError):  # the transport is closing: the peer has gone
            transport.write(data)
