"""Access: who a request comes from, by the token in its header."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request

from qtide.service.task import Caller
from qtide.service.tokens import NotAllowed, Register

ANONYMOUS = Caller("anonymous", operator=True)
"""The caller of every request in a demonstration."""


class Access:
    """Turns a request into a caller."""

    def __init__(self, register: Register, *, anonymous: bool) -> None:
        self._register = register
        self._anonymous = anonymous

    async def caller(self, request: Request) -> Caller:
        """The caller, or a refusal."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return self._known(token.strip())
        if self._anonymous:
            return ANONYMOUS
        raise NotAllowed("a token is needed: send Authorization: Bearer TOKEN")

    def _known(self, token: str) -> Caller:
        try:
            return self._register.caller(token)
        except NotAllowed:
            if self._anonymous:
                return ANONYMOUS
            raise


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
