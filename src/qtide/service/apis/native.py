"""The native API: tasks, devices and accounts under /v1, described by OpenAPI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from qtide.backends.payloads.payload import Burst, Encoded, encode
from qtide.service.allocations import Allocation
from qtide.service.apis.api import Api
from qtide.service.apis.forms import (
    BYTES,
    MOST_FORM,
    AllocationForm,
    CalibrationForm,
    ChargeForm,
    DeviceForm,
    DrainForm,
    EstimateForm,
    NewAllocation,
    QuotaForm,
    SessionForm,
    SubmissionForm,
    TaskForm,
    TaskList,
    UsageForm,
    WhyForm,
    inline_schema,
    refusals,
)
from qtide.service.apis.request_gate import (
    Authenticator,
    read_body,
    release_bytes,
    validated,
    while_connected,
)
from qtide.service.bulk import SMALL, read_form_alone, read_submission
from qtide.service.connection import KEY
from qtide.service.device.served_device import ServedDevice
from qtide.service.intake import Submission
from qtide.service.limits import in_slices
from qtide.service.records import PIECE
from qtide.service.routing import members
from qtide.service.service import Service
from qtide.service.task import (
    ANY,
    CalibrationSet,
    CalibrationTerms,
    Caller,
    ServiceTask,
    TaskState,
    check_operates,
    whose,
)

BODY = inline_schema(SubmissionForm)
LONGEST_HOLD = 60.0
"""Maximum seconds that a response may wait for a task's end."""

Id = Annotated[
    str,
    Path(pattern=r"^[0-9a-f-]{4,36}$", description="The task's id, or the beginning of it."),
]
Name = Annotated[
    str, Path(pattern=r"^(any:)?[A-Za-z0-9_-]{1,63}$", description="The device's name.")
]
Wait = Annotated[
    float, Query(ge=0, le=LONGEST_HOLD, description="Seconds to wait for the task's end.")
]
KEYS = r"^[!-~]{1,200}$"
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=KEYS,
        description="The same key gives the same task, however often it is sent.",
    ),
]
Before = Annotated[int | None, Query(ge=1, le=2**62, description="Only tasks older than this.")]
By = Literal["user", "account", "job", "device"]
Moment = Annotated[float | None, Query(ge=0, le=1e11, description="Seconds since 1970.")]


def native_api(service: Service, access: Authenticator) -> Api:
    """Make the API, which sends refusals unchanged."""
    router = APIRouter(prefix="/v1", responses=refusals())
    caller_of = Depends(access.caller)
    _tasks(router, service, caller_of)
    _task_actions(router, service, caller_of)
    _sessions(router, service, caller_of)
    _explanations(router, service, caller_of)
    _devices(router, service, caller_of)
    _accounts(router, service, caller_of)
    _allocations(router, service, caller_of)
    return Api("/v1", router, bulk=[read_submission, read_form_alone])


def _tasks(router: APIRouter, service: Service, caller_of: Any) -> None:
    @router.post(
        "/tasks", status_code=201, response_model=TaskForm, tags=["tasks"], openapi_extra=BODY
    )
    async def submit(
        request: Request, caller: Caller = caller_of, wait: Wait = 0.0, key: Key = None
    ) -> Response:
        """Submit a payload or a batch of circuits. Once acknowledged, it is durable."""
        task = await service.submit(caller, await _submission(service, caller, request, key))
        release_bytes(request)
        if not service.over_quota(task):  # whoever waits for a quota hears it at once
            await _wait(service, request, task, wait)
        return await _with_answer(service, caller, task, 201)

    @router.get("/tasks", response_model=TaskList, tags=["tasks"])
    async def list_tasks(
        caller: Caller = caller_of,
        state: Annotated[list[TaskState], Query()] = [],  # noqa: B006 - FastAPI copies it
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Before = None,
        everybody: Annotated[bool, Query(description="All users' tasks; for operators.")] = False,
        key: Annotated[
            str | None, Query(pattern=KEYS, description="Only the task submitted with this key.")
        ] = None,
    ) -> Response:
        """My tasks, newest first."""
        if key is not None:
            known = service.task_by_key(caller, key)
            rows = [] if known is None else [described(service, known)]
            return _json({"tasks": rows, "before": None})
        async with service.lists.turn(caller.user):
            found = await service.tasks(caller, state, limit, before, everybody=everybody)
            tasks = await in_slices(service.world, found, partial(_row, service))
        last = json.dumps(found[-1][0] if found else None)
        text = f'{{"tasks": [{", ".join(tasks)}], "before": {last}}}'
        return Response(text, media_type="application/json")

    @router.get("/tasks/{id}", response_model=TaskForm, tags=["tasks"])
    async def get_task(
        request: Request,
        id: Id,  # noqa: A002 - the path's word
        caller: Caller = caller_of,
        wait: Wait = 0.0,
        partial: Annotated[bool, Query(description="The answer so far, if it gave way.")] = False,
    ) -> Response:
        """One task: its state, and its answer once it is done."""
        task = service.task(caller, id)
        await _wait(service, request, task, wait)
        return await _with_answer(service, caller, task, 200, partial=partial)


def _task_actions(router: APIRouter, service: Service, caller_of: Any) -> None:
    @router.get("/tasks/{id}/payload", responses=BYTES, tags=["tasks"])
    async def get_payload(id: Id, caller: Caller = caller_of) -> Response:  # noqa: A002 - as above
        """The payload that was submitted, as stored."""
        found = await service.contents.payload(caller, service.task(caller, id))
        return Response(found.data, media_type="application/octet-stream")

    @router.post("/tasks/{id}/cancel", response_model=TaskForm, tags=["tasks"])
    async def cancel(id: Id, caller: Caller = caller_of) -> Response:  # noqa: A002 - as above
        """Cancel a task; one on the device ends when the device releases it."""
        return _json(described(service, await service.cancel(caller, id)))

    @router.post("/tasks/{id}/retry", status_code=201, response_model=TaskForm, tags=["tasks"])
    async def retry(id: Id, caller: Caller = caller_of, key: Key = None) -> Response:  # noqa: A002 - as above
        """Submit a task that has ended once more: a new task with the same payload and seed."""
        again = await service.retry(caller, id, key)
        return Response(json.dumps(described(service, again)), 201, media_type="application/json")

    @router.delete("/tasks/{id}", status_code=204, tags=["tasks"])
    async def forget(id: Id, caller: Caller = caller_of) -> None:  # noqa: A002 - as above
        """Cancel a task and delete its payload and answer; its usage record stays."""
        await service.forget(caller, id)


def _sessions(router: APIRouter, service: Service, caller_of: Any) -> None:
    @router.post(
        "/sessions",
        status_code=201,
        response_model=TaskForm,
        tags=["tasks"],
        openapi_extra=inline_schema(SessionForm),
    )
    async def open_session(
        request: Request, caller: Caller = caller_of, key: Key = None
    ) -> Response:
        """Ask for a device for a while. It is a task until its end; cancelling closes it."""
        body = await read_body(request, MOST_FORM)
        words, _ = await service.bulk.do(read_form_alone, body, caller.user)
        form = validated(SessionForm, words)
        submission = Submission(
            device=form.device,
            payload=encode(Burst(form.seconds)),
            name=form.name,
            priority=form.priority,
            max_wait=form.max_wait,
            idle=form.idle,
            key=key,
            digest=sha256(form.model_dump_json().encode()).hexdigest() if key else "",
        )
        return Response(
            json.dumps(described(service, await service.submit(caller, submission))),
            201,
            media_type="application/json",
        )


def _explanations(router: APIRouter, service: Service, caller_of: Any) -> None:
    @router.post("/estimates", response_model=EstimateForm, tags=["tasks"], openapi_extra=BODY)
    async def estimate(request: Request, caller: Caller = caller_of) -> Response:
        """What a payload would take, and when it would start, without submitting it."""
        return _json(
            await service.estimate(caller, await _submission(service, caller, request, None))
        )

    @router.get("/tasks/{id}/why", response_model=WhyForm, tags=["tasks"])
    async def why(id: Id, caller: Caller = caller_of) -> Response:  # noqa: A002 - as above
        """What stands before a task, which rule put it there, and what would change that."""
        return _json(service.why(caller, id))


def _devices(router: APIRouter, service: Service, caller_of: Any) -> None:
    @router.get("/devices", response_model=list[DeviceForm], tags=["devices"])
    async def list_devices(caller: Caller = caller_of) -> Response:
        """All devices that I may use, and their states."""
        found = service.offered("native", caller)
        return _json([device_described(each) for each in found])

    @router.get("/devices/{name}", response_model=DeviceForm, tags=["devices"])
    async def get_device(name: Name, caller: Caller = caller_of) -> Response:
        """One device; for a class such as `any:gate`, the one of them with the fewest connections.

        What fits it fits most of the others.
        """
        if name.startswith(ANY):
            found = members(name.removeprefix(ANY), service.devices, caller, "native")
            least = min(found, key=lambda each: len(each.properties.get("connections", ())))
            return _json(device_described(least) | {"name": name})
        return _json(device_described(service.device(name, caller, "native")))

    @router.get("/calibrations/{set_id}", response_model=CalibrationForm, tags=["devices"])
    async def get_calibration(
        set_id: Annotated[str, Path(pattern=r"^[!-~]{1,200}$", description="The set's id.")],
        caller: Caller = caller_of,
    ) -> Response:
        """A calibration set that a task ran on, also if the device has another one by now."""
        device, found = service.calibration(caller, set_id)
        return _json(calibration_described(device, found))

    @router.post(
        "/devices/{name}/drain",
        response_model=DeviceForm,
        tags=["devices"],
        openapi_extra=inline_schema(DrainForm),
    )
    async def drain(name: Name, request: Request, caller: Caller = caller_of) -> Response:
        """Start no more tasks on a device, but keep queueing new ones. For operators."""
        check_operates(caller)
        body = await read_body(request, MOST_FORM)
        words, _ = await service.bulk.do(read_form_alone, body or b"{}", caller.user)
        form = validated(DrainForm, words)
        await service.operations.drain(caller, name, form.reason, licences=form.licences)
        return _json(device_described(service.device(name)))

    @router.post("/devices/{name}/resume", response_model=DeviceForm, tags=["devices"])
    async def resume(name: Name, caller: Caller = caller_of) -> Response:
        """Start tasks on a device again. For operators."""
        await service.operations.resume(caller, name)
        return _json(device_described(service.device(name)))


def _accounts(router: APIRouter, service: Service, caller_of: Any) -> None:
    @router.get("/usage", response_model=list[UsageForm], tags=["accounts"])
    async def get_usage(
        caller: Caller = caller_of,
        by: Annotated[list[By], Query()] = ["user"],  # noqa: B006 - FastAPI copies it
        since: Moment = None,
        until: Moment = None,
        everybody: Annotated[bool, Query(description="All users'; for operators.")] = False,
    ) -> Response:
        """Device time in seconds by user, account, job or device, including running tasks."""
        keys = list(dict.fromkeys(by))
        return _rows(await service.usage(caller, keys, since, until, everybody=everybody))

    @router.get("/charges", response_model=list[ChargeForm], tags=["accounts"])
    async def get_charges(
        since: Annotated[float, Query(ge=0, le=1e11)],
        until: Annotated[float, Query(ge=0, le=1e11)],
        caller: Caller = caller_of,
        after: Annotated[int, Query(ge=0, le=2**62, description="Only later numbers.")] = 0,
        everybody: Annotated[bool, Query(description="All users'; for operators.")] = False,
    ) -> Response:
        """What each task that ended in a period was charged; ask again after the last number."""
        return _rows(await service.charges(caller, since, until, after, everybody=everybody))

    @router.get("/quotas", response_model=list[QuotaForm], tags=["accounts"])
    async def get_quotas(caller: Caller = caller_of) -> Response:
        """What is left of my quota and allocations, and my account's."""
        return _json(service.quotas_left(caller))


def _allocations(router: APIRouter, service: Service, caller_of: Any) -> None:
    @router.get("/allocations", response_model=list[AllocationForm], tags=["accounts"])
    async def list_allocations(
        caller: Caller = caller_of,
        everybody: Annotated[bool, Query(description="All of them; for operators.")] = False,
    ) -> Response:
        """The allocations that limit me now, with what is left of each."""
        whole = whose(caller, everybody=everybody) is None
        return _json(service.allocations.all() if whole else service.allocations.left(caller))

    @router.post(
        "/allocations",
        status_code=201,
        response_model=AllocationForm,
        tags=["accounts"],
        openapi_extra=inline_schema(NewAllocation),
    )
    async def add_allocation(request: Request, caller: Caller = caller_of) -> Response:
        """Limit what an account or a user may use in a period. For operators."""
        check_operates(caller)
        body = await read_body(request, MOST_FORM)
        words, _ = await service.bulk.do(read_form_alone, body or b"{}", caller.user)
        form = validated(NewAllocation, words)
        made = await service.operations.add_allocation(caller, Allocation(0, **form.model_dump()))
        text = json.dumps(service.allocations.described(made))
        return Response(text, 201, media_type="application/json")

    @router.delete("/allocations/{number}", status_code=204, tags=["accounts"])
    async def remove_allocation(
        number: Annotated[int, Path(ge=1, lt=2**63)], caller: Caller = caller_of
    ) -> None:
        """Remove an allocation, which then limits nobody. For operators."""
        await service.operations.remove_allocation(caller, number)


def described(service: Service, task: ServiceTask) -> dict[str, Any]:
    """Describe a task in the format of this API."""
    return {
        "id": task.id,
        "name": task.name,
        "state": str(task.state),
        "device": task.device,
        "user": task.caller.user,
        "account": task.caller.account,
        "job": task.caller.job,
        "format": task.format,
        "shots": task.shots,
        "size": task.size,
        "seed": task.seed,
        "priority": task.priority,
        "max_wait": task.max_wait,
        "idle": task.idle,
        "session": task.session,
        "route": f"{ANY}{task.route.kind}" if task.route else None,
        "fidelity": task.route.options[task.device].fidelity if task.route else None,
        "beside_others": task.width is not None,
        "beside": task.beside,
        "attempts": task.attempts,
        "submitted": task.submitted,
        "started": task.started,
        "ended": task.ended,
        "expected_seconds": task.seconds,
        "qpu_seconds": task.used,
        "share": task.share,
        "error": task.error,
        "calibration": task.calibration,
    } | _standing(service, task)


def device_described(device: ServedDevice) -> dict[str, Any]:
    """Describe a device in the format of this API."""
    return {
        "name": device.name,
        "kind": device.setup.kind,
        "state": device.state,
        "reason": device.reason,
        "policy": device.setup.policy,
        "slots": device.setup.slots,
        "waiting": device.waiting,
        "running": device.running,
        "expected_wait": device.expected_wait,
        "maintenance": [each.model_dump() for each in device.maintenance],
        "properties": device.properties,
        "profile": {
            "payload_s": device.profile.payload_s,
            "shot_s": device.profile.shot_s,
            "shots": device.profile.shots,
        },
        "calibration": None
        if device.calibration_set is None
        else calibration_described(device.name, device.calibration_set),
    }


def calibration_described(device: str, found: CalibrationSet) -> dict[str, Any]:
    """Describe a calibration set in the format of this API."""
    return {"id": found.id, "device": device, "at": found.at, "metrics": found.metrics}


def _standing(service: Service, task: ServiceTask) -> dict[str, Any]:
    """Why a task waits and when it should start and end; empty if it has ended."""
    standing = service.standing(task)
    if standing is None:
        return {}
    return {
        "reason": standing.reason,
        "position": standing.position,
        "expected_start": standing.start,
        "expected_end": standing.end,
    }


async def _wait(service: Service, request: Request, task: ServiceTask, seconds: float) -> None:
    """Wait for a task's end, unless the client hangs up."""
    if seconds > 0 and not task.over:
        await while_connected(request, service.wait(task, seconds))


async def _submission(
    service: Service, caller: Caller, request: Request, key: str | None
) -> Submission:
    """Read a submission from a request; another process reads a large body."""
    words, payload = await service.bulk.do(read_submission, await read_body(request), caller.user)
    form = validated(SubmissionForm, words)
    connection = request.scope.get(KEY)
    return Submission(
        device=form.device,
        payload=Encoded(form.format, payload),
        shots=form.shots,
        seed=form.seed,
        name=form.name,
        priority=form.priority,
        max_wait=form.max_wait,
        session=form.session,
        min_fidelity=form.min_fidelity,
        beside_others=form.beside_others,
        terms=CalibrationTerms(form.calibration, form.calibrated_within),
        key=key,
        digest=await _digest(form, payload) if key else "",
        hung_up=connection.hung_up if connection else None,
    )


async def _digest(form: SubmissionForm, payload: bytes) -> str:
    """A digest that tells apart different requests with the same key."""
    terms = (form.device, form.format, form.shots, form.seed, form.name)
    rest: tuple[Any, ...] = (form.priority, form.max_wait)
    if (form.calibration, form.calibrated_within) != (None, None):  # keep the digests of old stores
        rest += (form.calibration, form.calibrated_within)
    if (form.session, form.min_fidelity) != (None, None):
        rest += (form.session, form.min_fidelity)
    if form.beside_others:
        rest += ("beside others",)
    whole = json.dumps([*terms, *rest]).encode() + payload
    found = sha256(whole) if len(whole) <= SMALL else await asyncio.to_thread(sha256, whole)
    return found.hexdigest()


async def _with_answer(
    service: Service, caller: Caller, task: ServiceTask, status: int, *, partial: bool = False
) -> Response:
    """Respond with a task and its answer, which is already JSON and inserted in pieces."""
    words = json.dumps(described(service, task))
    extent = await service.contents.answer_extent(caller, task, partial=partial)
    if extent is None:
        return Response(words, status, media_type="application/json")
    head = f'{words[:-1]}, "answer_format": {json.dumps(extent.format)}, "answer": '.encode()
    pieces = service.contents.answer_pieces(task, extent)
    if extent.size <= PIECE:
        body = head + b"".join([each async for each in pieces]) + b"}"
        return Response(body, status, media_type="application/json")

    async def whole() -> AsyncIterator[bytes]:
        yield head
        async for piece in pieces:
            yield piece
        yield b"}"

    length = {"content-length": str(len(head) + extent.size + 1)}
    return StreamingResponse(whole(), status, length, "application/json")


def _row(service: Service, numbered: tuple[int, ServiceTask]) -> str:
    number, task = numbered
    return json.dumps(described(service, task) | {"number": number})


def _rows(rows: list[str]) -> Response:
    """Respond with a list whose items are JSON already."""
    return Response(f"[{', '.join(rows)}]", media_type="application/json")


def _json(value: Any) -> Response:
    return Response(json.dumps(value), media_type="application/json")
