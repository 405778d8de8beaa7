"""The API for IQM's clients, which presents tasks as circuit jobs."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import IO, Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from qtide.backends.payloads.guard import MOST_CIRCUITS
from qtide.backends.payloads.payload import Encoded, PayloadRefused
from qtide.core.errors import QtideError
from qtide.core.version import __version__
from qtide.service.apis.api import Api, RefusalBody
from qtide.service.apis.forms import refusals
from qtide.service.apis.iqm_bodies import read_circuits, write_counts, write_measurements
from qtide.service.apis.iqm_computers import (
    Computer,
    Computers,
    channel_properties,
)
from qtide.service.apis.request_gate import Authenticator, read_body, release_bytes, validated
from qtide.service.bulk import SMALL, Work, Writer
from qtide.service.connection import KEY
from qtide.service.device.served_device import computer_id
from qtide.service.intake import Submission
from qtide.service.quotas import Storage
from qtide.service.records import PIECE
from qtide.service.service import Service
from qtide.service.task import (
    CalibrationTerms,
    Caller,
    Conflict,
    NotFound,
    ServiceTask,
    TaskStanding,
    TaskState,
)

SOURCE = "qtide"
STATUS = {
    TaskState.QUEUED: "waiting",
    TaskState.RUNNING: "processing",
    TaskState.DONE: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELLED: "cancelled",
}
WHY = {
    "queue": "others are ahead of it",
    "starting": "the device is starting",
    "down": "the device is down and is being started again",
    "maintenance": "the device is in maintenance",
    "calibration": "the device is being calibrated",
    "quota": "the quota is used up for today",
}
ARTIFACTS = {"measurements": write_measurements, "measurement_counts": write_counts}
"""The function that writes each artifact of an answer."""
LONGEST_NAME = 200


class CircuitName(BaseModel):
    """The name of a circuit; the device's own process reads the rest."""

    name: Annotated[str, Field(max_length=LONGEST_NAME)] = ""


class CircuitTerms(BaseModel):
    """The fields of a request that the service itself needs, besides the circuits.

    It ignores options that only reduce noise, which emulated devices do not have.
    """

    shots: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    calibration_set_id: UUID | None = None
    heralding_mode: Literal["none"] = "none"
    """Heralding drops shots, which clients rely on, so it must not be ignored silently."""
    name: str = ""
    """The first circuit's name, for lists of tasks."""


class CircuitRequest(BaseModel):
    """A request, as OpenAPI describes it; circuits are counted before they are parsed."""

    circuits: Annotated[list[CircuitName], Field(min_length=1, max_length=MOST_CIRCUITS)]
    shots: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    calibration_set_id: UUID | None = None
    heralding_mode: Literal["none"] = "none"

    @classmethod
    def schema_inline(cls) -> dict[str, Any]:
        """The schema with its definitions inlined, since OpenAPI allows only its own."""
        schema = cls.model_json_schema()
        schema["properties"]["circuits"]["items"] = schema.pop("$defs")["CircuitName"]
        return schema


def described(service: Service, task: ServiceTask) -> dict[str, Any]:
    """Describe a task in the format of IQM's clients."""
    standing = service.standing(task) if task.state is TaskState.QUEUED else None
    return {
        "id": task.id,
        "type": "circuit",
        "status": STATUS[task.state],
        "qc": {"id": str(computer_id(task.device)), "alias": task.device},
        "queue_position": standing.position if standing else None,
        "compilation": _compilation(service, task),
        "timeline": [_entry(status, at) for status, at in _timeline(task) if at is not None],
        "messages": _messages(standing, service.now()) if standing else [],
        "errors": _errors(task),
        "artifacts": _artifacts(task),
    }


def ends_within(service: Service, task: ServiceTask, seconds: float) -> bool:
    """Whether a task should end within `seconds`, so that delaying the response is worthwhile."""
    standing = service.standing(task)
    if standing is None:
        return True
    return standing.end is not None and standing.end - service.now() <= seconds


def _compilation(service: Service, task: ServiceTask) -> dict[str, Any] | None:
    return None if task.calibration is None else {"calibration_set_id": task.calibration}


def _timeline(task: ServiceTask) -> Iterator[tuple[str, float | None]]:
    """IQM's own steps; circuits are checked before they are accepted, and not compiled."""
    for step in ("created", "received", "compilation_started", "compilation_ended"):
        yield step, task.submitted
    yield "execution_started", task.started
    if task.started is not None:
        yield "execution_ended", task.ended
    if task.state is TaskState.DONE:
        yield "ready", task.ended
    yield STATUS[task.state], task.ended


def _entry(status: str, at: float) -> dict[str, Any]:
    return {"source": SOURCE, "status": status, "timestamp": _moment(at)}


def _messages(standing: TaskStanding, now: float) -> list[dict[str, str]]:
    """Explain why a task waits, and until when, so that it does not look stuck."""
    reason, start = standing.reason or "queue", standing.start
    said = f"the job waits, as {WHY[reason]}"
    if start is not None:
        said += f"; it should start at {_moment(start)}, in {max(0.0, start - now):.1f} s"
    return [{"source": SOURCE, "message": said}]


def _errors(task: ServiceTask) -> list[dict[str, str]]:
    if task.state is not TaskState.FAILED:
        return []
    return [{"source": SOURCE, "error_code": "failed", "message": task.error or "it failed"}]


def _artifacts(task: ServiceTask) -> list[dict[str, str]]:
    done = task.state is TaskState.DONE
    return [{"type": name} for name in ARTIFACTS if done]


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


HOLD = 5.0
"""Maximum seconds to delay a response about a job that should end by then.

Clients poll once per second, so every short job would lose up to a second. For a longer job, the
response comes at once, as a user who only checks on it expects.
"""
ABOUT: dict[str, Any] = {"version": __version__, "software_versions": {"qtide": __version__}}
PROTOBUF = "application/protobuf"
BYTES: dict[int | str, dict[str, Any]] = {200: {"content": {PROTOBUF: {}}}}
SHORT_HOLD = 1.0
"""The same for a longer job whose client asks to wait. QRMI asks so in every call, even in the one
before it cancels: if we waited that long, it would cancel a job that has ended.
"""

Id = Annotated[
    str, Path(pattern=r"^[0-9a-f-]{4,36}$", description="The job's id, or the beginning of it.")
]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,63}$", description="Its id or alias.")]
Set = Annotated[str, Path(pattern=r"^(default|[0-9a-f-]{36})$", description="The id, or default.")]
Wait = Annotated[bool, Query(alias="wait_until_terminal")]
Timeout = Annotated[float, Query(alias="timeout_seconds", ge=0)]
BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": CircuitRequest.schema_inline()}},
    }
}


class IqmError(BaseModel):
    """An error, as IQM's clients read it; they choose their exception by the status."""

    message: str
    error_code: str
    source: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": IqmError}
    for status in (400, 401, 403, 404, 408, 409, 410, 413, 422, 429, 431, 503, 507)
}


def iqm_api(service: Service, access: Authenticator) -> Api:
    """Make the API, with refusals in the format of IQM's clients."""
    router = APIRouter(prefix="/api/v1", responses=ERRORS, tags=["IQM"])
    caller_of = Depends(access.caller)
    computers = Computers(service)
    _computers(router, computers, caller_of)
    _chip(router, computers, caller_of)
    _calibration_sets(router, computers, caller_of)
    _submission(router, service, computers, caller_of)
    _jobs(router, service, caller_of)
    _api_artifacts(router, service, caller_of)
    bulk: list[Work | Writer] = [read_circuits, *ARTIFACTS.values()]
    return Api("/api", _with_about(router, caller_of), _refusal, bulk=bulk)


def _with_about(router: APIRouter, caller_of: Any) -> APIRouter:
    """Add `/about` outside the prefix, where some versions of the clients look for it."""
    whole = APIRouter()
    whole.include_router(router)

    @whole.get("/about", tags=["IQM"], responses=refusals())
    async def get_about(caller: Caller = caller_of) -> dict[str, Any]:
        """The version of this service."""
        return ABOUT

    return whole


def _refusal(said: RefusalBody) -> RefusalBody:
    return {"message": said["message"], "error_code": said["error"], "source": SOURCE}


def _computers(router: APIRouter, computers: Computers, caller_of: Any) -> None:
    @router.get("/about")
    async def get_about(caller: Caller = caller_of) -> dict[str, Any]:
        """The version of this service."""
        return ABOUT

    @router.get("/quantum-computers")
    async def list_computers(caller: Caller = caller_of) -> dict[str, Any]:
        """All devices that accept IQM circuits."""
        return {"quantum_computers": [each.described() for each in await computers.all(caller)]}

    @router.get("/quantum-computers/{computer}")
    async def get_computer(computer: Name, caller: Caller = caller_of) -> dict[str, Any]:
        """One device, with its health where QRMI looks for it."""
        found = await computers.find(computer, caller)
        return found.described() | {"status": {"health": found.health()}}

    @router.get("/quantum-computers/{computer}/health")
    async def get_health(computer: Name, caller: Caller = caller_of) -> dict[str, Any]:
        """Whether the device starts tasks."""
        return (await computers.find(computer, caller)).health()

    @router.get("/quantum-computers/{computer}/artifacts/about")
    async def get_about_computer(computer: Name, caller: Caller = caller_of) -> dict[str, Any]:
        """The version of the software that runs the device."""
        await computers.find(computer, caller)
        return ABOUT

    @router.get("/quantum-computers/{computer}/artifacts/static-quantum-architectures")
    async def get_static(computer: Name, caller: Caller = caller_of) -> list[dict[str, Any]]:
        """The device's qubits and their connections."""
        return [(await computers.find(computer, caller)).static_architecture()]


def _chip(router: APIRouter, computers: Computers, caller_of: Any) -> None:
    @router.get("/quantum-computers/{computer}/artifacts/duts")
    async def get_chips(computer: Name, caller: Caller = caller_of) -> list[dict[str, Any]]:
        """The device's single chip."""
        found = await computers.find(computer, caller)
        return [{"label": found.device.name, "dut_type": "chip"}]

    @router.get("/quantum-computers/{computer}/artifacts/channel-properties", responses=BYTES)
    async def get_channels(computer: Name, caller: Caller = caller_of) -> Response:
        """Which qubits can control each other, as protobuf, which clients of any version expect."""
        found = await computers.find(computer, caller)
        return Response(channel_properties(found.device.properties), media_type=PROTOBUF)


def _calibration_sets(router: APIRouter, computers: Computers, caller_of: Any) -> None:
    async def calibrated(computer: Name, calibration: Set, caller: Caller = caller_of) -> Computer:
        found = await computers.find(computer, caller)
        found.check_calibration(calibration)
        return found

    chosen = Depends(calibrated)

    @router.get("/calibration-sets/{computer}/{calibration}")
    async def get_calibration(
        caller: Caller = caller_of, found: Computer = chosen
    ) -> dict[str, Any]:
        """The calibration set."""
        return found.calibration_set()

    @router.get("/calibration-sets/{computer}/{calibration}/metrics")
    async def get_metrics(caller: Caller = caller_of, found: Computer = chosen) -> dict[str, Any]:
        """The quality of the gates."""
        return found.quality_metrics()

    @router.get("/calibration-sets/{computer}/{calibration}/dynamic-quantum-architecture")
    async def get_dynamic(caller: Caller = caller_of, found: Computer = chosen) -> dict[str, Any]:
        """Which gates can act on which qubits."""
        return found.dynamic_architecture()


def _submission(router: APIRouter, service: Service, computers: Computers, caller_of: Any) -> None:
    @router.post("/jobs/{computer}/circuit", status_code=201, openapi_extra=BODY)
    async def submit(
        computer: Name, request: Request, caller: Caller = caller_of, use_timeslot: bool = False
    ) -> Response:
        """Submit a batch of circuits. Once acknowledged, it is durable."""
        if use_timeslot:
            raise QtideError("there are no time slots here; submit with use_timeslot=False")
        found = await computers.find(computer, caller)
        task = await service.submit(caller, await _to_submit(service, caller, found, request))
        release_bytes(request)
        return _json(described(service, task), 201)


def _jobs(router: APIRouter, service: Service, caller_of: Any) -> None:
    @router.get("/jobs/{id}")
    async def get_job(
        id: Id,  # noqa: A002 - the path's word
        caller: Caller = caller_of,
        wait: Wait = False,
        timeout: Timeout = 30.0,
    ) -> Response:
        """The state of a job; if it should end soon, wait for its end."""
        task = _task(service, caller, id)
        if ends_within(service, task, HOLD):
            await service.wait(task, min(HOLD, timeout))
        elif wait:
            await service.wait(task, min(SHORT_HOLD, timeout))
        return _json(described(service, task))

    @router.get("/jobs/{id}/payload")
    async def get_payload(id: Id, caller: Caller = caller_of) -> Response:  # noqa: A002 - as above
        """The request that submitted the job."""
        request = await service.contents.request(caller, _task(service, caller, id))
        return Response(request, media_type="application/json")

    @router.post("/jobs/{id}/cancel")
    async def cancel(id: Id, caller: Caller = caller_of) -> Response:  # noqa: A002 - as above
        """Cancel a job; one on the device ends when the device releases it."""
        task = _task(service, caller, id)
        return _json(described(service, await service.cancel(caller, task.id)))

    @router.delete("/jobs/{id}", status_code=204)
    async def delete(id: Id, caller: Caller = caller_of) -> None:  # noqa: A002 - as above
        """Cancel a job and delete its payload and answer; its usage record stays."""
        task = _task(service, caller, id)
        await service.forget(caller, task.id)


def _api_artifacts(router: APIRouter, service: Service, caller_of: Any) -> None:
    @router.get("/jobs/{id}/artifacts/measurements")
    async def get_measurements(id: Id, caller: Caller = caller_of) -> Response:  # noqa: A002 - as above
        """The measurement results of each shot."""
        return await _written(service, caller, id, "measurements")

    @router.get("/jobs/{id}/artifacts/measurement_counts")
    async def get_counts(id: Id, caller: Caller = caller_of) -> Response:  # noqa: A002 - as above
        """How often each result was measured."""
        return await _written(service, caller, id, "measurement_counts")


async def _to_submit(
    service: Service, caller: Caller, computer: Computer, request: Request
) -> Submission:
    """Read a submission from a request; another process reads a large body."""
    body = await read_body(request)
    words, _ = await service.bulk.do(read_circuits, body, caller.user)
    terms = validated(CircuitTerms, words)
    most = computer.device.properties.get("most", {}).get("circuits")
    if most is not None and words["number"] > most:
        raise PayloadRefused(
            f"{computer.device.name} takes 1 to {most} circuits at once, not {words['number']}"
        )
    wanted = terms.calibration_set_id
    if wanted is not None:
        computer.check_calibration(str(wanted))
    connection = request.scope.get(KEY)
    return Submission(
        device=computer.device.name,
        payload=Encoded("iqm", body),
        shots=terms.shots,
        name=terms.name,
        request=body,
        api="iqm",
        terms=CalibrationTerms(None if wanted is None else str(wanted)),
        hung_up=connection.hung_up if connection else None,
    )


def _task(service: Service, caller: Caller, id: str) -> ServiceTask:  # noqa: A002 - the name users know
    """The caller's circuit job; refuse tasks with other payloads, from other APIs."""
    task = service.task(caller, id)
    if task.format != "iqm":
        raise NotFound(f"the task {id!r} is not a job of IQM's circuits; get it from /v1/tasks")
    return task


async def _written(service: Service, caller: Caller, id: str, artifact: str) -> Response:  # noqa: A002 - as above
    """Respond with an artifact of a job; another process writes a large one."""
    task = _task(service, caller, id)
    if task.state is not TaskState.DONE:
        raise Conflict(f"the job {id!r} has no measurements: it is {task.state}")

    async def read() -> bytes:
        return (await service.contents.answer(caller, task)).data

    extent = await service.contents.answer_extent(caller, task)
    if extent is None or extent.size <= SMALL:  # whoever does not own it is refused by reading it
        pieces = service.bulk.stream(ARTIFACTS[artifact], await read(), caller.user)
        return Response(b"".join([each async for each in pieces]), media_type="application/json")
    await service.spools.wait(caller.user)
    pieces = service.bulk.stream(ARTIFACTS[artifact], read, caller.user)
    return await Spooled.of(pieces, service.storage, lambda: service.spools.give_back(caller.user))


class Spooled(Response):
    """A long answer sent from disk, since its reader may be slow."""

    media_type = "application/json"

    @classmethod
    async def of(
        cls, pieces: AsyncIterator[bytes], storage: Storage, over: Callable[[], None]
    ) -> Spooled:
        """Spool an answer to disk; call `over` when it has been sent or fails."""
        file = tempfile.TemporaryFile(dir=storage.folder)  # noqa: SIM115 - closed when it is sent
        try:
            async for piece in pieces:
                storage.check_free(len(piece))
                await asyncio.to_thread(file.write, piece)
            size = file.tell()
        except BaseException:
            file.close()
            over()
            raise
        made = cls(headers={"content-length": str(size)})
        made._file, made._over = file, over
        return made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer in pieces."""
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            self._file.seek(0)
            while piece := await asyncio.to_thread(self._file.read, PIECE):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._file.close()
            self._over()

    _file: IO[bytes]
    _over: Callable[[], None]


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")
