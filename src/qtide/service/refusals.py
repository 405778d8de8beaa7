"""Why the service refuses a request; each API has its own format for it."""

from __future__ import annotations

from qtide.errors import QtideError


class NotFound(QtideError):  # noqa: N818 - what happened
    """There is no such thing, or it belongs to another user."""


class Forbidden(QtideError):  # noqa: N818 - what happened
    """The caller is known, but may not do this."""


class Conflict(QtideError):  # noqa: N818 - what happened
    """The request contradicts an earlier one, or is ambiguous."""


class CannotPromise(QtideError):  # noqa: N818 - what happened
    """The task would wait longer than its longest wait."""

    def __init__(self, reason: str, start: float | None, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.start = start
