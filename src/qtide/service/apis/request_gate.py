"""The gate that every request passes before its body is parsed.

It identifies the sender by token, else by the local user, else by address. Then it checks whether
the sender may have one more request, more bytes, and a turn of the event loop; a sender over its
limits waits or is refused.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qtide.core.errors import QtideError
from qtide.core.world.real import RealWorld
from qtide.service.admission import Refused, Unreachable
from qtide.service.audit import ORIGIN
from qtide.service.connection import KEY, Connection
from qtide.service.identities import People, Person
from qtide.service.limits import (
    Contention,
    FairSemaphore,
    LeakyBucket,
    Limits,
    TooLarge,
    WrongSite,
)
from qtide.service.task import Caller
from qtide.service.tokens import PREFIX, NotAllowed, Register

CALLER = "qtide.caller"
"""The key of the caller in a request's scope."""
ANONYMOUS = Caller("anonymous", operator=True)
"""The user who started a demonstration."""
OPERATOR = Caller("operator", operator=True)
"""The user who runs the service, or root, at the Unix socket."""
PAGE_FIELD = b"x-qtide-page"
"""A field that the page adds to its requests; a browser sends it to no other site unasked."""
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Authenticator:
    """Identifies the caller of a request."""

    def __init__(
        self,
        register: Register,
        *,
        anonymous: bool,
        cookie: str = "qtide",
        people: People | None = None,
    ) -> None:
        self.cookie = cookie
        """The name of the cookie in which a signed-in page keeps its token."""
        self._register = register
        self._people = people
        self._anonymous = anonymous
        self._owners = {0, os.geteuid()}

    async def identify(self, scope: Scope) -> Caller:
        """Identify the caller by the head of a request alone, or refuse it."""
        connection: Connection | None = scope.get(KEY)
        token = self.shown(scope)
        if self._anonymous:
            _check_site(scope)
            return await self._guest(token, connection)
        if token and (self._people is None or token.startswith(PREFIX)):
            return self._register.caller(token)
        if token and self._people is not None:
            return self._known(await self._people.by_token(token))
        # the kernel identifies users of the Unix socket, but ports may be forwarded from anywhere
        if connection is not None and connection.peer.unix and connection.peer.uid in self._owners:
            return OPERATOR
        if self._people is not None and connection is not None and connection.peer.uid is not None:
            person = await self._people.by_uid(connection.peer.uid)
            if person is not None:
                return self._known(person)
        raise NotAllowed(
            "a token is needed in QTIDE_TOKEN (or as Authorization: Bearer TOKEN); "
            "the operator makes one on the service's host: qtide token new USER"
        )

    def shown(self, scope: Scope) -> str:
        """The token that a request shows, in its head or in a page's cookie; empty if none."""
        return bearer(scope) or self._cookie_token(scope)

    def _known(self, person: Person) -> Caller:
        return self._register.person(person.user, person.account, person.groups)

    async def operates(self, scope: Scope) -> bool:
        """Whether a request, which anybody may send, comes from an operator."""
        try:
            return (await self.identify(scope)).operator
        except (NotAllowed, WrongSite, Refused, Unreachable):
            return False

    async def caller(self, request: Request) -> Caller:
        """The caller, as identified by the gate."""
        found: Caller = request.scope[CALLER]
        return found

    def _cookie_token(self, scope: Scope) -> str:
        """The token of a signed-in page; refuse a change that another site's page may have sent."""
        fields = _field(scope, b"cookie").split(";")
        pairs = (each.strip().partition("=") for each in fields)
        token = next((value for name, _, value in pairs if name == self.cookie), "")
        if not token:
            return ""
        foreign = _field(scope, b"sec-fetch-site") not in ("", "same-origin", "none")
        safe = scope["method"] in ("GET", "HEAD", "OPTIONS")
        if not safe and (foreign or not _field(scope, PAGE_FIELD)):
            raise WrongSite("a page of another site sent this request, or it has no X-Qtide-Page")
        return token

    async def _guest(self, token: str, connection: Connection | None) -> Caller:
        """The caller in a demonstration: no token needed, and its starter is the operator."""
        if token:
            with suppress(NotAllowed):
                return self._register.caller(token)
        if connection is None:
            return Caller("an unknown peer")
        uid = await connection.local_uid()
        if uid in self._owners:
            return ANONYMOUS
        return Caller(connection.peer.name if uid is None else f"uid {uid}")


def bearer(scope: Scope) -> str:
    """The bearer token of a request, or an empty string."""
    scheme, _, token = _field(scope, b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _field(scope: Scope, wanted: bytes) -> str:
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value.decode("latin-1"))
    return ""


def _check_site(scope: Scope) -> None:
    """Refuse other sites: without tokens, their pages could send requests by a user's browser."""
    host, origin = _field(scope, b"host"), _field(scope, b"origin")
    if host and host.rpartition(":")[0] not in LOCAL_NAMES and host not in LOCAL_NAMES:
        raise WrongSite(f"{host[:100]!r} is not a name of this service; use 127.0.0.1")
    if origin and origin.partition("://")[2] != host:
        raise WrongSite("a web page of another site sent this request")


def describe_tokens(app: FastAPI) -> None:
    """Describe tokens in OpenAPI, since a FastAPI dependency would slow down every request."""
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
"""The key of the request's `Load` in its scope."""
PUBLIC = ("/health", "/metrics", "/docs", "/openapi.json")
"""Paths that need no token; APIs may have more."""
MOST_PUBLIC = 4096
"""Maximum bytes of a request without a token."""
PIECE = 64 * 1024
"""Bytes of an answer to send at a time; the next piece waits until these are on their way."""

Refuse = Callable[[Request, Exception], Awaitable[Response]]
Watch = Callable[[Callable[[Limits, int], None]], None]
"""Registers a function to call with new limits and a new maximum size of requests."""


class Gate:
    """Admits a request, or refuses it by its head alone."""

    def __init__(
        self,
        app: ASGIApp,
        access: Authenticator,
        limits: Limits,
        most_bytes: int,
        refuse: Refuse,
        public: Collection[str] = (),
        watch: Watch = lambda _: None,
    ) -> None:
        self._public = frozenset(public) | {*PUBLIC}
        self._public_below = tuple(each for each in public if each.endswith("/") and each != "/")
        self._app = app
        self._access = access
        self._refuse = refuse
        world = RealWorld()
        self._requests = FairSemaphore(world, "requests", 1)
        self._bytes = FairSemaphore(world, "bytes of requests and answers", 1)
        self._loop = FairSemaphore(world, "turns", each=1, total=1)
        """Lets one request begin per round of the event loop, users in turn; otherwise, a user with
        a hundred connections would get a hundred times as much of the loop."""
        self._traffic = LeakyBucket(world, 1, 1)
        self._asking = LeakyBucket(world, 1, 1)
        self._refusals = LeakyBucket(world, 1, 1)
        self._contention = Contention(world)
        self.adopt(limits, most_bytes)
        watch(self.adopt)

    def adopt(self, limits: Limits, most_bytes: int) -> None:
        """Switch to these limits."""
        self._most = most_bytes
        self._requests.adopt(limits.requests_per_user)
        self._bytes.adopt(limits.bytes_in_flight_per_user, limits.bytes_in_flight)
        rate, often = limits.bytes_per_second_per_user, limits.requests_per_second_per_user
        self._traffic.adopt(rate, rate)
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
            return  # nobody is left to answer
        except QtideError as error:
            response = await self._refuse(Request(scope), error)
            await response(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Identify the sender, check size and limits, and only then run the application."""
        who, most = await self._who(scope)
        _check_length(scope, most)
        with self._requests.taking(who):
            await self._traffic.wait(who)
            if self._contention.joins(who):
                self._asking.charge(who, 1)
                await self._asking.wait(who)
            await self._loop.wait(who)
            asyncio.get_running_loop().call_soon(self._loop.give_back, who)
            load = scope[LOAD] = Load(self._bytes, who, self._traffic)
            try:
                outgoing = Outgoing(send, load, scope, self._refuse)
                await self._app(scope, _counting(receive, load, most), outgoing)
            finally:
                load.release()

    async def _who(self, scope: Scope) -> tuple[str, int]:
        """The sender of a request, and its maximum bytes."""
        connection: Connection | None = scope.get(KEY)
        peer = "a peer" if connection is None else connection.peer.name
        ORIGIN.set(peer)
        path = scope["path"]
        known = path in self._public or path.startswith(self._public_below)
        if known and (path != "/" or scope["method"] in ("GET", "HEAD")):  # the page is only read
            return peer, MOST_PUBLIC
        try:
            caller = scope[CALLER] = await self._access.identify(scope)
        except QtideError:
            self._refusals.charge(peer, 1)
            await self._refusals.wait(peer)
            raise
        who = f"user {caller.user}"
        if connection is not None:
            connection.prove(who)
        return who, self._most


class Load:
    """The bytes that one request holds in memory until it ends."""

    def __init__(self, budget: FairSemaphore, who: str, traffic: LeakyBucket) -> None:
        self._budget = budget
        self._who = who
        self._traffic = traffic
        self._amount = 0

    def add(self, amount: int) -> None:
        """Take more bytes, or refuse."""
        self._traffic.charge(self._who, amount)
        self._budget.take(self._who, amount)
        self._amount += amount

    async def keep_pace(self) -> None:
        """Wait if the sender is too fast."""
        await self._traffic.wait(self._who)

    async def pass_through(self, amount: int) -> None:
        """Count bytes that are only passed through, at the pace allowed to the user."""
        await self._traffic.wait(self._who)
        self._traffic.charge(self._who, amount)

    def release(self) -> None:
        """Release all bytes, since the request no longer holds them."""
        if self._amount:
            self._budget.give_back(self._who, self._amount)
            self._amount = 0


def _check_length(scope: Scope, most: int) -> None:
    """Refuse a request whose announced length is too large, before reading it."""
    for name, value in scope["headers"]:
        if name == b"content-length" and (not value.isdigit() or int(value[:20]) > most):
            raise _too_large(most)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the request is larger than {most} bytes; send less at once")


def _counting(receive: Receive, load: Load, most: int) -> Receive:
    """Count and limit the bytes of a request as they arrive."""
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
    """Sends an answer in pieces, and counts them; a peer that does not read delays only itself."""

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
        whole = 0 if message.get("more_body") else len(body)
        if self._start is not None and not await self._began(whole):
            return
        if message.get("more_body"):  # a stream has only one piece in memory
            await self._load.pass_through(len(body))
        for at in range(0, len(body) - PIECE, PIECE):
            piece = bytes(memoryview(body)[at : at + PIECE])
            await self._send({"type": message["type"], "body": piece, "more_body": True})
        rest = body if len(body) <= PIECE else body[-(len(body) % PIECE or PIECE) :]
        await self._send({**message, "body": rest})

    async def _began(self, size: int) -> bool:
        """Send the head; if the answer exceeds the user's bytes in flight, refuse instead."""
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


async def read_body(request: Request, most: int | None = None) -> bytes:
    """Read all bytes of a request without keeping a copy; refuse more than `most`."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if most is not None and size > most:
            raise _too_large(most)
    return b"".join(parts)


Form = TypeVar("Form", bound=BaseModel)


def validated(form: type[Form], words: dict[str, Any]) -> Form:
    """Validate fields as a form, or refuse them and say where they are wrong."""
    try:
        return form.model_validate(words)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_input=False)) from None


async def while_connected(request: Request, wait: Coroutine[Any, Any, None]) -> None:
    """Wait for something, but stop if the sender of the request hangs up.

    If the sender has too many connections, the wait ends early in favour of newer requests.
    """
    connection: Connection | None = request.scope.get(KEY)
    if connection is None:
        await wait
        return
    task, gone = asyncio.ensure_future(wait), connection.hung_up()
    gone.add_done_callback(lambda _: task.cancel())
    connection.hold(task)
    try:
        await asyncio.wait([task])
    finally:
        connection.hold(None)
        task.cancel()
    if gone.done():
        raise ClientDisconnect
    if not task.cancelled():
        task.result()


def release_bytes(request: Request) -> None:
    """Release the bytes of a request's body, once it has been processed."""
    request.scope[LOAD].release()
