"""Circuit jobs: tasks in the format of IQM's clients."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from qtide.payloads.limits import MOST_CIRCUITS
from qtide.service.apis.iqm.computers import calibration_set_id, computer_id
from qtide.service.service import Service
from qtide.service.standing import Standing
from qtide.service.task import State, Task

SOURCE = "qtide"
STATUS = {
    State.QUEUED: "waiting",
    State.RUNNING: "processing",
    State.DONE: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
}
WHY = {
    "queue": "others are ahead of it",
    "starting": "the device is starting",
    "down": "the device is down and is being started again",
    "maintenance": "the device is in maintenance",
    "calibration": "the device is being calibrated",
    "quota": "the quota is used up for today",
}
LONGEST_NAME = 200


class CircuitName(BaseModel):
    """Only the name of a circuit: the device's own process reads the rest."""

    name: Annotated[str, Field(max_length=LONGEST_NAME)] = ""


class CircuitTerms(BaseModel):
    """What the service itself needs of a request, beside its circuits.

    Options that only reduce noise are not read: an emulated device does not have them.
    """

    shots: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    calibration_set_id: UUID | None = None
    heralding_mode: Literal["none"] = "none"
    """Heralding drops shots, and clients rely on that: it must not be ignored silently."""
    name: str = ""
    """The first circuit's name, for lists of tasks."""


class CircuitRequest(BaseModel):
    """A request, as OpenAPI describes it; circuits are counted before anything is made of them."""

    circuits: Annotated[list[CircuitName], Field(min_length=1, max_length=MOST_CIRCUITS)]
    shots: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    calibration_set_id: UUID | None = None
    heralding_mode: Literal["none"] = "none"

    @classmethod
    def schema_inline(cls) -> dict[str, Any]:
        """For OpenAPI, which allows no definitions but its own."""
        schema = cls.model_json_schema()
        schema["properties"]["circuits"]["items"] = schema.pop("$defs")["CircuitName"]
        return schema


def described(service: Service, task: Task) -> dict[str, Any]:
    """A task in the format of IQM's clients."""
    standing = service.standing(task) if task.state is State.QUEUED else None
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


def ends_within(service: Service, task: Task, seconds: float) -> bool:
    """Whether a task should be over soon: then it is worth delaying the response."""
    standing = service.standing(task)
    if standing is None:
        return True
    return standing.end is not None and standing.end - service.now() <= seconds


def _compilation(service: Service, task: Task) -> dict[str, Any] | None:
    device = service.devices.get(task.device)
    if device is None or task.started is None:
        return None
    return {"calibration_set_id": str(calibration_set_id(device))}


def _timeline(task: Task) -> Iterator[tuple[str, float | None]]:
    yield "created", task.submitted
    yield "execution_started", task.started
    if task.started is not None:
        yield "execution_ended", task.ended
    yield STATUS[task.state], task.ended


def _entry(status: str, at: float) -> dict[str, Any]:
    return {"source": SOURCE, "status": status, "timestamp": _moment(at)}


def _messages(standing: Standing, now: float) -> list[dict[str, str]]:
    """Why a task waits, and until when, so that it does not look stuck."""
    reason, start = standing.reason or "queue", standing.start
    said = f"the job waits, as {WHY[reason]}"
    if start is not None:
        said += f"; it should start at {_moment(start)}, in {max(0.0, start - now):.1f} s"
    return [{"source": SOURCE, "message": said}]


def _errors(task: Task) -> list[dict[str, str]]:
    if task.state is not State.FAILED:
        return []
    return [{"source": SOURCE, "error_code": "failed", "message": task.error or "it failed"}]


def _artifacts(task: Task) -> list[dict[str, str]]:
    done = task.state is State.DONE
    return [{"type": name} for name in ("measurements", "measurement_counts") if done]


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
