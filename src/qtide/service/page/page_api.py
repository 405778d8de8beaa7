"""The page at `/`, how its users sign in, and the routes with the figures that it shows.

The page is a user of the API like any other. Its cookie holds a token, which scripts cannot read;
a request that changes something also needs a header that no other site can make a browser send.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from qtide.core.version import __version__
from qtide.core.world.real import RealWorld
from qtide.core.world.world import BackgroundTasks
from qtide.service import tokens
from qtide.service.apis.api import Api
from qtide.service.apis.forms import MOST_FORM, refusals
from qtide.service.apis.request_gate import Authenticator, read_body, validated
from qtide.service.bulk import Bulk, read_form_alone
from qtide.service.connection import KEY
from qtide.service.limits import MB
from qtide.service.monitoring import TICK, DeviceHistory, resolution
from qtide.service.page.drawing import drawn
from qtide.service.page.feed import Feed
from qtide.service.page.figures import Figures, story
from qtide.service.page.levels_page import levels_page
from qtide.service.service import Service
from qtide.service.task import Caller, NotFound, check_operates, check_owns
from qtide.service.tokens import NotAllowed

STATIC = Path(__file__).with_name("static")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing comes from elsewhere, no script is inline, and no other page can embed this one."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
KEY_LASTS = 300.0
"""Seconds that a link of `qtide page` works."""
MOST_KEYS, MOST_KEYS_OF_USER = 1000, 10
"""Links that wait to be opened; then the oldest, of the user first, is forgotten."""
OWN_LASTS = 12 * 3600.0
"""Seconds that a page stays signed in which was opened by the user who runs the service."""

LEVELS_DAYS, LEVELS_STAY = 30.0, 60.0
"""Days that published levels look back, and seconds for which they stay."""

SPANS = {"5min": 300.0, "hour": 3600.0, "day": 86_400.0}
MOST_DRAWN = 16 * MB
"""Bytes of an answer beyond which it is not drawn."""
Span = Annotated[Literal["5min", "hour", "day"], Query(description="How far to look back.")]
Name = Annotated[str, InPath(pattern=r"^[A-Za-z0-9_-]{1,63}$", description="The device's name.")]
Id = Annotated[str, InPath(pattern=r"^[0-9a-f-]{4,36}$", description="The task's id.")]
Moment = Annotated[float | None, Query(ge=0, le=1e11, description="Seconds since 1970.")]


class SignInForm(BaseModel):
    """A token, or the key of a link that works once; and where the page lives."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(max_length=500)] | None = None
    key: Annotated[str, Field(max_length=100)] | None = None
    base: Annotated[str, Field(pattern=r"^/([A-Za-z0-9._~%@:+-]+/)*$", max_length=500)] = "/"
    """The path of the page as its browser sees it: the cookie goes nowhere else."""


class SignIns:
    """Links that sign a page in once, and the cookie that keeps it signed in."""

    def __init__(self, service: Service, cookie: str) -> None:
        self._service = service
        self._cookie = cookie
        self._keys: dict[str, tuple[float, str, str]] = {}
        """Until when each key works, whose it is, and the token that it stands for."""

    async def link(self, caller: Caller, token: str) -> str:
        """Make a key that stands for the caller's token, or for a new one if it has none.

        A new one for who shows a token would outlive it, and the job that it may belong to.
        """
        if not token:
            token, write = tokens.issue(caller, OWN_LASTS, "page")
            await self._service.store.write(write)
        now = self._service.now()
        self._keys = {k: v for k, v in self._keys.items() if v[0] > now}
        own = [key for key, (_, user, _) in self._keys.items() if user == caller.user]
        for oldest in own[: 1 - MOST_KEYS_OF_USER] or list(self._keys)[: 1 - MOST_KEYS]:
            del self._keys[oldest]
        key = secrets.token_urlsafe(32)
        self._keys[key] = now + KEY_LASTS, caller.user, token
        return key

    def token(self, form: SignInForm) -> str:
        """The valid token that a form names, itself or by a key; the key is used up."""
        if form.key is not None:
            until, _, token = self._keys.pop(form.key, (0.0, "", ""))
            if until < self._service.now():
                raise NotAllowed("this link was used already, or is too old; make one: qtide page")
        else:
            token = (form.token or "").strip()
        self._service.register.caller(token)
        return token

    def cookie(self, token: str, base: str, *, secure: bool) -> str:
        """The header that sets the cookie, or deletes it if the token is empty."""
        made: SimpleCookie = SimpleCookie()
        made[self._cookie] = token
        fields = made[self._cookie]
        fields["path"], fields["httponly"], fields["samesite"] = base, True, "Strict"
        if not token:
            fields["max-age"] = 0
        if secure:
            fields["secure"] = True
        return fields.OutputString()


def page_api(service: Service, access: Authenticator) -> Api:
    """Make the API with the page, its sign-in, and its figures."""
    history = DeviceHistory(
        service.store,
        service.metrics.activity,
        service.devices,
        service.now,
        service.register.holders,
    )
    feed = Feed(service)
    drawings = Bulk(service.world)  # apart from the other bodies: its processes load Qiskit
    drawings.allow([drawn])
    router = APIRouter(responses=refusals())
    caller_of = Depends(access.caller)
    _files(router)
    _sign_in(router, service, access)
    figures = Figures(service, history)
    _device_figures(router, service, figures, history, caller_of)
    _queue_figures(router, service, figures, caller_of)
    _service_figures(router, service, figures, caller_of)
    _tasks(router, service, feed, drawings, caller_of)
    _published_levels(router, service, figures)

    @asynccontextmanager
    async def life() -> AsyncIterator[None]:
        background = BackgroundTasks(RealWorld())
        background.repeat("history", history.look, TICK, longest=TICK)
        try:
            yield
        finally:
            feed.stop()
            await background.cancel()
            await drawings.close()

    return Api("/page", router, public=["/", "/page/", "/levels"], life=life)


def _files(router: APIRouter) -> None:
    """Serve the page's files from memory; a browser asks again, and gets only what has changed."""
    files = {
        each.name: (data, TYPES[each.suffix], f'"{sha256(data).hexdigest()[:16]}"')
        for each in sorted(STATIC.iterdir())
        if each.suffix in TYPES
        for data in [each.read_bytes()]
    }

    def answer(request: Request, name: str) -> Response:
        if name not in files:
            return Response("there is no such file", 404, HEADERS, "text/plain")
        data, kind, tag = files[name]
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, HEADERS | {"ETag": tag})
        return Response(data, 200, HEADERS | {"ETag": tag}, kind)

    @router.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        """The page."""
        return answer(request, "index.html")

    @router.get("/page/{name}", include_in_schema=False)
    async def file(name: str, request: Request) -> Response:
        """A file of the page."""
        return answer(request, name)


def _sign_in(router: APIRouter, service: Service, access: Authenticator) -> None:
    sign_ins, caller_of = SignIns(service, access.cookie), Depends(access.caller)

    @router.post("/page/session", include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        """Sign a page in: keep its token in a cookie."""
        body = await read_body(request, MOST_FORM)
        words, _ = await service.bulk.do(read_form_alone, body, "a page")
        form = validated(SignInForm, words)
        secure = request.headers.get("origin", "").startswith("https:")
        header = sign_ins.cookie(sign_ins.token(form), form.base, secure=secure)
        return Response(None, 204, {"Set-Cookie": header})

    @router.post("/page/leave", include_in_schema=False)
    async def sign_out(request: Request) -> Response:
        """Sign a page out: delete its cookie."""
        words, _ = await service.bulk.do(
            read_form_alone, await read_body(request, MOST_FORM) or b"{}", "a page"
        )
        form = validated(SignInForm, words)
        return Response(None, 204, {"Set-Cookie": sign_ins.cookie("", form.base, secure=False)})

    @router.post("/v1/links", status_code=201, tags=["page"], response_model=dict[str, Any])
    async def make_link(request: Request, caller: Caller = caller_of) -> Response:
        """Make a link, relative to the service, that opens the page signed in; it works once."""
        key = await sign_ins.link(caller, access.shown(request.scope))
        return _json({"path": f"/#key={key}", "seconds": KEY_LASTS}, 201)

    @router.get("/v1/me", tags=["page"], response_model=dict[str, Any])
    async def get_me(caller: Caller = caller_of) -> Response:
        """Who I am to the service."""
        return _json(
            {
                "user": caller.user,
                "account": caller.account,
                "job": caller.job,
                "operator": caller.operator,
                "anonymous": service.configuration.anonymous,
                "version": __version__,
            }
        )


def _device_figures(
    router: APIRouter, service: Service, figures: Figures, history: DeviceHistory, caller_of: Any
) -> None:
    @router.get("/v1/devices/{name}/history", tags=["figures"], response_model=dict[str, Any])
    async def get_history(
        name: Name, caller: Caller = caller_of, since: Moment = None, until: Moment = None
    ) -> Response:
        """What a device did: every 5 s of the last hour, or 1 min, 10 min or 1 h of longer ago.

        Seconds by what they went to, tasks by how they ended, waits, and the longest queue.
        """
        device = service.device(name, caller, "native")
        now = service.now()
        since = now - 3600.0 if since is None else since
        step = resolution(since, now)
        end = now + 1 if until is None else until
        async with service.lists.turn(caller.user):
            found = await history.read(device.name, since, end, step)
        periods = [{"at": at} | period.as_dict() for at, period in found]
        return _json({"device": name, "resolution": step, "periods": periods})

    @router.get("/v1/devices/{name}/timeline", tags=["figures"], response_model=dict[str, Any])
    async def get_timeline(name: Name, caller: Caller = caller_of, span: Span = "5min") -> Response:
        """Who used a device when, and why it idled, in 150 columns."""
        device = service.device(name, caller, "native")
        async with service.lists.turn(caller.user):
            return _json(await figures.timeline(caller, device, SPANS[span]))

    @router.get("/v1/devices/{name}/summary", tags=["figures"], response_model=dict[str, Any])
    async def get_summary(name: Name, caller: Caller = caller_of, span: Span = "hour") -> Response:
        """The sums of a device's last minutes, hour or day."""
        async with service.lists.turn(caller.user):
            return _json(await figures.summary(service.device(name, caller, "native"), SPANS[span]))


def _queue_figures(router: APIRouter, service: Service, figures: Figures, caller_of: Any) -> None:
    @router.get("/v1/devices/{name}/queue", tags=["figures"], response_model=dict[str, Any])
    async def get_queue(
        name: Name,
        caller: Caller = caller_of,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
        everybody: Annotated[bool, Query(description="All users' tasks; for operators.")] = False,
    ) -> Response:
        """A part of a device's queue, in the order in which the tasks should start."""
        device = service.device(name, caller, "native")
        if everybody:
            check_operates(caller)
        async with service.lists.turn(caller.user):
            found = await figures.queue(caller, device, offset, limit, everybody=everybody)
        return _json(found)

    @router.get("/v1/devices/{name}/recent", tags=["figures"], response_model=dict[str, Any])
    async def get_recent(
        name: Name,
        caller: Caller = caller_of,
        everybody: Annotated[bool, Query(description="All users' tasks; for operators.")] = False,
    ) -> Response:
        """The tasks of a device that run or ended last."""
        device = service.device(name, caller, "native")
        if everybody:
            check_operates(caller)
        async with service.lists.turn(caller.user):
            found = await figures.recent(caller, device, everybody=everybody)
        return _json({"tasks": found})


def _service_figures(router: APIRouter, service: Service, figures: Figures, caller_of: Any) -> None:
    @router.get("/v1/shares", tags=["figures"], response_model=dict[str, Any])
    async def get_shares(caller: Caller = caller_of) -> Response:
        """My account's decayed usage, rank and quotas; operators see all accounts."""
        return _json(await figures.shares(caller))

    @router.get("/v1/levels", tags=["figures"], response_model=dict[str, Any])
    async def get_levels(
        caller: Caller = caller_of,
        days: Annotated[float, Query(gt=0, le=731)] = 30.0,
    ) -> Response:
        """Service levels: availability, waits, promises kept, calibration and maintenance."""
        async with service.lists.turn(caller.user):
            found = await figures.levels(days)
        names = {each.name for each in service.offered("native", caller)}
        devices = [each for each in found["devices"] if each["device"] in names]
        return _json(found | {"devices": devices})

    @router.get("/v1/vitals", tags=["figures"], response_model=dict[str, Any])
    async def get_vitals(caller: Caller = caller_of) -> Response:
        """How the service itself is: counts since it started, and its virtual QPUs."""
        counts = service.metrics.totals()
        return _json(
            {
                "commits": service.store.commits,
                "failed_commits": service.store.failures,
                "retries": counts["retries"],
                "refusals": counts["refusals"],
                "worker_restarts": counts["worker_restarts"],
                "slurm_calls": service.slurm_calls(),
                "store": service.storage.trouble(),
                "slots": await figures.slots(),
            }
        )


def _published_levels(router: APIRouter, service: Service, figures: Figures) -> None:
    kept: tuple[float, str] = (0.0, "")

    @router.get("/levels", include_in_schema=False)
    async def get_published_levels() -> Response:
        """The service levels for everybody, if the site wants that; computed once a minute."""
        nonlocal kept
        if not service.configuration.publish_levels:
            raise NotFound("this service does not publish its levels; see: qtide usage --sla")
        now = service.now()
        if now > kept[0] or not kept[1]:
            kept = now + LEVELS_STAY, kept[1]  # others get the last ones meanwhile
            kept = kept[0], levels_page(await figures.levels(LEVELS_DAYS), LEVELS_DAYS, now)
        return Response(kept[1], 200, HEADERS, TYPES[".html"])


def _tasks(router: APIRouter, service: Service, feed: Feed, drawings: Bulk, caller_of: Any) -> None:
    @router.get("/v1/events", include_in_schema=False)
    async def get_events(
        request: Request,
        caller: Caller = caller_of,
        after: Annotated[str, Query(max_length=40)] = "",
    ) -> Response:
        """Changes as server-sent events, after the named one; without a name, first everything."""
        after = after or request.headers.get("last-event-id", "")
        stream = feed.stream(caller, after, request.scope.get(KEY))
        # a proxy may not hold events back
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, 200, headers, "text/event-stream")

    @router.get("/v1/tasks/{id}/story", tags=["tasks"], response_model=list[dict[str, Any]])
    async def get_story(id: Id, caller: Caller = caller_of) -> Response:  # noqa: A002 - the path's word
        """What happened to a task, each with its time."""
        return _json(story(service, caller, service.task(caller, id)))

    @router.get("/v1/tasks/{id}/drawing", tags=["tasks"], response_model=dict[str, Any])
    async def get_drawing(id: Id, caller: Caller = caller_of) -> Response:  # noqa: A002 - the path's word
        """A small picture of a task's payload and answer, as shapes to draw. For its owner."""
        task, contents = service.task(caller, id), service.contents
        check_owns(caller, task)
        extent = await contents.answer_extent(caller, task)
        drawable = extent is not None and extent.size <= MOST_DRAWN

        async def read() -> bytes:
            payload = await contents.payload(caller, task)
            answer = await contents.answer(caller, task) if drawable else None
            head = {
                "format": payload.format,
                "payload": len(payload.data),
                "answer_format": answer.format if answer else None,
            }
            return b"\n".join((json.dumps(head).encode(), payload.data)) + (
                answer.data if answer else b""
            )

        found, _ = await drawings.do(drawn, read, caller.user)
        if extent is not None and not drawable:
            found["answer_error"] = f"the answer has {extent.size / MB:.0f} MB, too many to draw"
        return _json(found)


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")
