"""The gate: every request passes it before anything of it is parsed.

Who sends it? By its token, otherwise by the user at the other end, otherwise by the address. May
it take one more request, so many bytes, a turn of the event loop? If not, it is refused at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qtide.core.errors import QtideError
from qtide.core.world.real import RealWorld
from qtide.service.connection import KEY, UNKNOWN, Peer
from qtide.service.limits import (
    Budget,
    Contention,
    Limits,
    Load,
    LoopTurns,
    Pace,
    TooLarge,
    WrongSite,
)
from qtide.service.task import Caller
from qtide.service.tokens import NotAllowed, Register

CALLER = "qtide.caller"
"""Where a request's scope has its caller."""
ANONYMOUS = Caller("anonymous", operator=True)
"""The user who started a demonstration."""
OPERATOR = Caller("operator", operator=True)
"""The user who runs the service, or root, by its Unix socket."""
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Authenticator:
    """Turns a request into a caller."""

    def __init__(self, register: Register, *, anonymous: bool) -> None:
        self._register = register
        self._anonymous = anonymous
        self._owners = {0, os.geteuid()}

    def identify(self, scope: Scope) -> Caller:
        """The caller, by the head of a request alone; or a refusal."""
        peer = _peer(scope)
        token = _token(scope)
        if self._anonymous:
            _check_site(scope)
            return self._guest(token, peer)
        if token:
            return self._register.caller(token)
        if self._runs_the_service(peer):
            return OPERATOR
        raise NotAllowed(
            "a token is needed in QTIDE_TOKEN (or as Authorization: Bearer TOKEN); "
            "the operator makes one on the service's host: qtide token new USER"
        )

    def operates(self, scope: Scope) -> bool:
        """Whether a request comes from an operator; others may send it as well."""
        try:
            return self.identify(scope).operator
        except (NotAllowed, WrongSite):
            return False

    async def caller(self, request: Request) -> Caller:
        """The caller, whom the gate has identified already."""
        found: Caller = request.scope[CALLER]
        return found

    def _guest(self, token: str, peer: Peer) -> Caller:
        """In a demonstration nobody needs a token; only the user who started it operates it."""
        if token:
            try:
                return self._register.caller(token)
            except NotAllowed:
                pass
        if peer.uid in self._owners:
            return ANONYMOUS
        return Caller(peer.name)

    def _runs_the_service(self, peer: Peer) -> bool:
        """The kernel vouches for users of the Unix socket; ports may be forwarded from anywhere."""
        return peer.unix and peer.uid in self._owners


def _peer(scope: Scope) -> Peer:
    connection = scope.get(KEY)
    return UNKNOWN if connection is None else connection.peer


def _token(scope: Scope) -> str:
    """The token that was sent, if any."""
    scheme, _, token = _field(scope, b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _field(scope: Scope, wanted: bytes) -> str:
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value.decode("latin-1"))
    return ""


def _check_site(scope: Scope) -> None:
    """Without tokens, a web page could send requests through its reader's browser."""
    host, origin = _field(scope, b"host"), _field(scope, b"origin")
    if host and host.rpartition(":")[0] not in LOCAL_NAMES and host not in LOCAL_NAMES:
        raise WrongSite(f"{host[:100]!r} is not a name of this service; use 127.0.0.1")
    if origin and origin.partition("://")[2] != host:
        raise WrongSite("a web page of another site sent this request")


def describe_tokens(app: FastAPI) -> None:
    """Describe tokens in OpenAPI; a FastAPI dependency would slow down every request."""
    describe = app.openapi
    scheme = {
        "type": "http",
        "scheme": "bearer",
        "description": "From `qtide token`, or a job's own.",
    }

    def described() -> dict[str, Any]:
        page = describe()
        page.setdefault("components", {})["securitySchemes"] = {"token": scheme}
        page["security"] = [{"token": []}]
        return page

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's own way


LOAD = "qtide.load"
"""Where a request's scope has the bytes that it holds."""
PUBLIC = ("/health", "/metrics", "/docs", "/docs/oauth2-redirect", "/openapi.json")
"""Paths that need no token; APIs may have more."""
MOST_PUBLIC = 4096
"""Bytes of a request without a token."""
PIECE = 64 * 1024
"""Bytes of an answer that are sent at once; the next piece waits until these are on their way."""

Refuse = Callable[[Request, Exception], Awaitable[Response]]
Watch = Callable[[Callable[[Limits, int], None]], None]
"""Takes what is to be called with other limits, and other bytes of a request."""


class Gate:
    """Lets a request in, or refuses it by its head alone."""

    def __init__(
        self,
        app: ASGIApp,
        access: Authenticator,
        limits: Limits,
        most_bytes: int,
        refuse: Refuse,
        public: Iterable[str] = (),
        watch: Watch = lambda _: None,
    ) -> None:
        self._public = frozenset(each for each in public if not each.endswith("/")) | {*PUBLIC}
        self._public_below = tuple(each for each in public if each.endswith("/"))
        self._app = app
        self._access = access
        self._refuse = refuse
        self._requests = Budget("requests", limits.requests_per_user)
        self._bytes = Budget("bytes of requests and answers", limits.bytes_in_flight_per_user)
        world = RealWorld()
        self._pace = Pace(world, 1, 1)
        self._company = Contention(world)
        self._asking = Pace(world, 1, 1)
        self._refusals = Pace(world, 1, 1)
        self._turns = LoopTurns()
        self.adopt(limits, most_bytes)
        watch(self.adopt)

    def adopt(self, limits: Limits, most_bytes: int) -> None:
        """Limit by these settings from now on."""
        self._most = most_bytes
        self._requests.adopt(limits.requests_per_user)
        self._bytes.adopt(limits.bytes_in_flight_per_user, limits.bytes_in_flight)
        rate, often = limits.bytes_per_second_per_user, limits.requests_per_second_per_user
        self._pace.adopt(rate, rate)
        self._asking.adopt(often, often)
        self._refusals.adopt(limits.refusals_per_second, 1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._let_in(scope, receive, send)
        except ClientDisconnect:
            return  # nobody is there to be told
        except QtideError as error:
            response = await self._refuse(Request(scope), error)
            await response(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        who, most = await self._who(scope)
        _check_length(scope, most)
        with self._requests.taking(who):
            await self._keep_pace(who)
            await self._turns.turn(who)
            load = scope[LOAD] = Load(self._bytes, who, self._pace)
            try:
                outgoing = Outgoing(send, load, scope, self._refuse)
                await self._app(scope, _counting(receive, load, most), outgoing)
            finally:
                load.release()

    async def _keep_pace(self, who: str) -> None:
        """Slow down a sender of too many bytes, or of too many requests while others ask, too."""
        await self._pace.wait(who)
        if self._company.joins(who):
            self._asking.charge(who, 1)
            await self._asking.wait(who)

    async def _who(self, scope: Scope) -> tuple[str, int]:
        """Who sends a request, and how many bytes it may have."""
        connection = scope.get(KEY)
        peer = "a peer" if connection is None else str(connection.peer_name)
        path = scope["path"]
        if path in self._public or (self._public_below and path.startswith(self._public_below)):
            return peer, MOST_PUBLIC
        try:
            caller = scope[CALLER] = self._access.identify(scope)
        except QtideError:
            self._refusals.charge(peer, 1)
            await self._refusals.wait(peer)
            raise
        if connection is not None:
            connection.prove()
        return f"user {caller.user}", self._most


def _check_length(scope: Scope, most: int) -> None:
    """Refuse a request that announces too much, before it is sent."""
    for name, value in scope["headers"]:
        if name == b"content-length" and (not value.isdigit() or int(value[:20]) > most):
            raise _too_large(most)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the request is larger than {most} bytes; send less at once")


def _counting(receive: Receive, load: Load, most: int) -> Receive:
    """Count the bytes of a request as they come."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if body := message.get("body", b""):
            seen += len(body)
            if seen > most:
                raise _too_large(most)
            load.add(len(body))
            await load.keep_pace()
        return message

    return counted


class Outgoing:
    """Sends an answer in pieces, and counts it: a peer that does not read holds up itself alone."""

    def __init__(self, send: Send, load: Load, scope: Scope, refuse: Refuse) -> None:
        self._send = send
        self._load = load
        self._scope = scope
        self._refuse = refuse
        self._start: Message | None = None
        self._refused = False

    async def __call__(self, message: Message) -> None:
        """Send a part of the answer."""
        if self._refused:
            return
        if message["type"] == "http.response.start":
            self._start = message
            return
        body = message.get("body", b"")
        if self._start is not None and not await self._began(len(body)):
            return
        for at in range(0, len(body) - PIECE, PIECE):
            piece = bytes(memoryview(body)[at : at + PIECE])
            await self._send({"type": message["type"], "body": piece, "more_body": True})
        rest = body if len(body) <= PIECE else body[-(len(body) % PIECE or PIECE) :]
        await self._send({**message, "body": rest})

    async def _began(self, size: int) -> bool:
        """Send the head; if the answer is more than its reader may hold, refuse instead."""
        start, self._start = self._start, None
        assert start is not None
        try:
            if size > PIECE:
                self._load.add(size)
        except QtideError as error:
            self._refused = True
            await (await self._refuse(Request(self._scope), error))(
                self._scope, _nothing, self._send
            )
            return False
        await self._send(start)
        return True


async def _nothing() -> Any:
    return {"type": "http.disconnect"}


async def read_body(request: Request) -> bytes:
    """All bytes of a request, which nobody else keeps."""
    return b"".join([part async for part in request.stream()])


async def while_connected(request: Request, wait: Coroutine[Any, Any, None]) -> None:
    """Wait for something, but not longer than the sender of a request does."""
    connection = request.scope.get(KEY)
    if connection is None:
        await wait
        return
    task, gone = asyncio.ensure_future(wait), connection.hung_up()
    gone.add_done_callback(lambda _: task.cancel())
    try:
        await task
    except asyncio.CancelledError:
        task.cancel()
        if gone.done():
            raise ClientDisconnect from None
        raise


def release_bytes(request: Request) -> None:
    """The body of a request has been dealt with; only its answer is still to come."""
    request.scope[LOAD].release()
