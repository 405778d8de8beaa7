"""The definition of an API: its path prefix, its routes, and its format of refusals.

A package registers a `MakeApi` callable in the entry-point group `qtide.apis`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from qtide.backends.devices.device import WorkerLost
from qtide.backends.payloads.payload import PayloadRefused
from qtide.core.errors import PhaseError, QtideError
from qtide.service.admission import Refused, Unproven, Unreachable
from qtide.service.apis.request_gate import Authenticator
from qtide.service.bulk import Work, Writer
from qtide.service.limits import OverLimit, Overloaded, StorageFull, TooLarge, WrongSite
from qtide.service.quotas import QuotaExceeded
from qtide.service.service import Service
from qtide.service.store import StoreFailed
from qtide.service.task import CannotPromise, Conflict, Forbidden, Gone, NotFound
from qtide.service.tokens import NotAllowed

RefusalBody = dict[str, Any]
"""A refusal: its short name in `error`, a sentence in `message`, and perhaps more fields."""


@dataclass(frozen=True)
class Api:
    """An API of the service."""

    prefix: str
    """The prefix of its paths; if several match, the longest one wins."""
    router: APIRouter
    refusal: Callable[[RefusalBody], RefusalBody] = lambda said: said
    """Converts a refusal to its own format."""
    public: Collection[str] = ()
    """Paths that need no token, such as `/prefix/hello`; one that ends in a slash is a prefix."""
    bulk: Collection[Work | Writer] = ()
    """Functions that read or write its large bodies in another process."""
    life: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext
    """A context that stays open while the service runs."""


MakeApi = Callable[[Service, Authenticator], Api | None]
"""Makes the API of a service; None if the configuration does not ask for it."""


STATUS: dict[type[Exception], tuple[int, str]] = {
    NotAllowed: (401, "not_allowed"),
    Forbidden: (403, "forbidden"),
    NotFound: (404, "not_found"),
    Gone: (410, "gone"),
    Conflict: (409, "conflict"),
    CannotPromise: (409, "cannot_promise"),
    PayloadRefused: (422, "payload_refused"),
    QuotaExceeded: (429, "quota_exceeded"),
    OverLimit: (429, "over_limit"),
    Overloaded: (503, "overloaded"),
    TooLarge: (413, "too_large"),
    StorageFull: (507, "storage_full"),
    WrongSite: (403, "wrong_site"),
    WorkerLost: (503, "device_down"),
    StoreFailed: (503, "store_failed"),
    Unproven: (401, "unproven"),
    Refused: (403, "not_admitted"),
    Unreachable: (503, "unreachable"),
}


def refuser(
    apis: Iterable[Api], told: Callable[[Request, int, str, str], None] = lambda *_: None
) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Make an error handler that tells of errors and responds in the format of the API used."""
    longest_first = sorted(apis, key=lambda api: len(api.prefix), reverse=True)

    async def refused(request: Request, error: Exception) -> Response:
        status, said = _status_and_body(error)
        told(request, status, said["error"], said["message"])
        for api in longest_first:
            if request.scope["path"].startswith(f"{api.prefix}/"):
                said = api.refusal(said)
                break
        body = json.dumps(said)  # in ASCII, since a message may contain lone surrogates
        return Response(body, status, _headers(status, error), "application/json")

    return refused


def _headers(status: int, error: Exception) -> dict[str, str]:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    headers |= dict(getattr(error, "headers", None) or {})
    if status in (429, 503):
        headers["Retry-After"] = f"{getattr(error, 'retry_after', None) or 1.0:.0f}"
    return headers


def _status_of(error: Exception) -> tuple[int, str]:
    """The HTTP status and short name of an error; unlisted ones are the caller's mistake."""
    for kind in type(error).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 400, "refused"


def _mistake(error: RequestValidationError) -> str:
    """Describe what is wrong with a request, without repeating its contents."""
    first: Mapping[str, Any] = error.errors()[0]
    place = first["loc"] or ("body",)  # a field whose name is no text has no place
    where = ".".join(str(each) for each in place if each != "body")
    if place[0] == "path" and first["type"] == "string_pattern_mismatch":
        what = place[-1]
        return f"there is no {'task with that id' if what == 'id' else f'such {what}'} here"
    if where.lower().endswith("key") and first["type"] == "string_pattern_mismatch":
        return "a key is 1 to 200 printable ASCII characters without spaces"
    return f"the request is wrong at {where or 'its body'}: {first['msg']}"


def _status_and_body(error: Exception) -> tuple[int, RefusalBody]:
    if isinstance(error, QtideError | PhaseError):
        status, name = _status_of(error)
        said: RefusalBody = {"error": name, "message": str(error)}
        if isinstance(error, CannotPromise):
            said |= {"reason": error.reason, "expected_start": error.start}
        if isinstance(error, OverLimit) and error.retry_after:
            said |= {"retry_after": error.retry_after}
        return status, said
    if isinstance(error, RequestValidationError):
        return 422, {"error": "malformed", "message": _mistake(error)}
    if isinstance(error, HTTPException):
        name = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        return error.status_code, {"error": name, "message": str(error.detail)}
    raise error
