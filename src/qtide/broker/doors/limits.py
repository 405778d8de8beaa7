"""The largest request: what is longer is turned away while it comes, not when it is there."""

from __future__ import annotations

import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class TooLarge(Exception):  # noqa: N818 - what happened
    """More bytes came than may."""


class BodyLimit:
    """Counts the bytes of each request."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer 413."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._most:
            await self._refuse(send)
            return
        try:
            await self._app(scope, self._counting(receive), send)
        except TooLarge:
            await self._refuse(send)

    def _counting(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise TooLarge
            return message

        return counted

    async def _refuse(self, send: Send) -> None:
        said = f"the request is larger than {self._most} bytes; send less at once"
        body = json.dumps({"error": "too_large", "message": said}).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        start = {"type": "http.response.start", "status": 413, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": body})
