"""Access: who a request comes from, by its token, or by the user at the other end of the socket."""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI, Request
from starlette.types import Scope

from qtide.service.limits.connection import KEY
from qtide.service.limits.peer import UNKNOWN, Peer
from qtide.service.limits.refusals import WrongSite
from qtide.service.task import Caller
from qtide.service.tokens import NotAllowed, Register

CALLER = "qtide.caller"
"""Where a request's scope has its caller."""
ANONYMOUS = Caller("anonymous", operator=True)
"""The user who started a demonstration."""
OPERATOR = Caller("operator", operator=True)
"""The user who runs the service, or root, by its Unix socket."""
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Access:
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
