"""Why the service refuses what somebody asks for; each API has its own words for it."""

from __future__ import annotations

from qtide.errors import QtideError


class NotFound(QtideError):  # noqa: N818 - what happened
    """There is no such thing, or it is somebody else's."""


class Forbidden(QtideError):  # noqa: N818 - what happened
    """The caller is known, but may not do this."""


class Conflict(QtideError):  # noqa: N818 - what happened
    """The request contradicts an earlier one, or may mean several things."""


class CannotPromise(QtideError):  # noqa: N818 - what happened
    """The task would wait longer than it may."""

    def __init__(self, reason: str, start: float | None, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.start = start
