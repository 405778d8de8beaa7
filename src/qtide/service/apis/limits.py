"""The largest request: a longer one is refused while it arrives, not once it is complete."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Counts the bytes of each request, as announced and as received."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; reading beyond the limit raises an error."""
        if scope["type"] == "http":
            receive = self._counting(scope, receive)
        await self._app(scope, receive, send)

    def _counting(self, scope: Scope, receive: Receive) -> Receive:
        lengths = [int(value) for name, value in scope["headers"] if name == b"content-length"]
        said = max(lengths, default=0)
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            if said > self._most:
                raise self._too_large()
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise self._too_large()
            return message

        return counted

    def _too_large(self) -> HTTPException:
        said = f"the request is larger than {self._most} bytes; send less at once"
        return HTTPException(413, said, {"Connection": "close"})
