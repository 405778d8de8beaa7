"""Why a request is refused before its work begins: it would take more than its sender may."""

from __future__ import annotations

from qtide.errors import QtideError


class OverLimit(QtideError):  # noqa: N818 - what happened
    """The caller takes as much as it may; after a while it may take more (HTTP 429)."""

    def __init__(self, sentence: str, retry_after: float = 1.0) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Overloaded(QtideError):  # noqa: N818 - what happened
    """All callers together take as much as the service has (HTTP 503)."""


class TooLarge(QtideError):  # noqa: N818 - what happened
    """A request has more bytes than any may have (HTTP 413)."""


class StorageFull(QtideError):  # noqa: N818 - what happened
    """A user has stored as much as allowed, or the disk is nearly full (HTTP 507)."""


class WrongSite(QtideError):  # noqa: N818 - what happened
    """A web page of another site sent the request (HTTP 403)."""
