"""The requests and responses of the native API, as OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Text = Annotated[str, Field(max_length=200)]
State = Literal["queued", "running", "done", "failed", "cancelled"]
DeviceState = Literal["starting", "idle", "busy", "error", "maintenance", "calibration"]
Reason = Literal["queue", "starting", "down", "maintenance", "calibration", "quota"]


class SubmissionForm(BaseModel):
    """A payload for a device: as a JSON value in `payload`, or as bytes (base64) in `data`."""

    model_config = ConfigDict(extra="forbid")

    device: Text
    format: Text
    payload: Any = None
    data: str | None = None
    shots: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    name: Text = ""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    max_wait: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    """Seconds within which it has to start; if that cannot be promised, it is refused."""


class TaskForm(BaseModel):
    """A task."""

    id: str
    name: str
    state: State
    device: str
    user: str
    account: str
    job: int | None
    format: str
    shots: int
    size: int
    seed: int
    priority: int
    max_wait: float | None
    attempts: int
    submitted: float
    started: float | None
    ended: float | None
    expected_seconds: float
    qpu_seconds: float
    error: str | None
    reason: Reason | None = None
    """Why it waits."""
    position: int | None = None
    """How many tasks are before it."""
    expected_start: float | None = None
    expected_end: float | None = None
    answer_format: str | None = None
    answer: Any = None
    number: int | None = None


class TaskList(BaseModel):
    """Tasks, newest first; to get the next page, pass `before`."""

    tasks: list[TaskForm]
    before: int | None


class DeviceForm(BaseModel):
    """A device."""

    name: str
    kind: str
    state: DeviceState
    reason: str | None
    policy: str
    slots: int
    waiting: int
    running: int
    expected_wait: float | None
    """Seconds that a new task would wait behind all others; None if nobody can say."""
    properties: dict[str, Any]
    profile: dict[str, float]


class DrainForm(BaseModel):
    """Why a device is drained."""

    model_config = ConfigDict(extra="forbid")

    reason: Text | None = None
    """What users are told; None keeps what they were told already."""
    licences: bool = False
    """Let Slurm grant as many licences fewer as the device has slots."""


class UsageForm(BaseModel):
    """What a user, account, job or device has used."""

    user: str | None = None
    account: str | None = None
    job: int | None = None
    device: str | None = None
    tasks: int
    running: int
    qpu_seconds: float
    first: float
    last: float


class QuotaForm(BaseModel):
    """What a user or an account has of its quota, and what is left; None means no limit."""

    of: Literal["user", "account"]
    name: str
    tasks: int
    """Waiting or running."""
    tasks_left: int | None
    qpu_seconds: float
    """Used today (UTC), or reserved."""
    qpu_seconds_left: float | None
    until: float
    """When the next day begins."""


class ErrorForm(BaseModel):
    """What was wrong, where, and what to do."""

    error: str
    message: str
    reason: Reason | None = None
    expected_start: float | None = None


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, for its description."""
    known = statuses or (400, 401, 403, 404, 408, 409, 413, 422, 429, 431, 503, 507)
    return {status: {"model": ErrorForm} for status in known}


Form = TypeVar("Form", bound=BaseModel)


def validated(form: type[Form], words: dict[str, Any]) -> Form:
    """The form of what was read, or a refusal that says where it is wrong."""
    try:
        return form.model_validate(words)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_input=False)) from None


def inline_schema(form: type[BaseModel]) -> dict[str, Any]:
    """The description of a body that the route reads by itself."""
    schema = form.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
