"""What the native API takes and answers, as its OpenAPI description shows it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from qtide.service.allocations import FOREVER, AllocationPeriod
from qtide.service.configuration import MaintenanceWindow

Text = Annotated[str, Field(max_length=200)]


StateName = Literal["queued", "running", "done", "failed", "cancelled"]


DeviceState = Literal["starting", "idle", "busy", "error", "maintenance", "calibration"]


Reason = Literal["queue", "starting", "down", "maintenance", "calibration", "quota"]


class SubmissionForm(BaseModel):
    """A payload for a device, as a JSON value in `payload` or as base64 in `data`."""

    model_config = ConfigDict(extra="forbid")

    device: Text
    format: Text
    payload: Any = None
    data: str | None = None
    shots: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Each device has a lower limit of its own."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    name: Text = ""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    max_wait: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    """Seconds within which it has to start; it is refused if that cannot be promised."""
    session: Text | None = None
    """The session that it belongs to; it starts at once while that holds the device."""
    min_fidelity: Annotated[float, Field(ge=0, le=1)] | None = None
    """The least expected fidelity; where it should be lower, the task is refused."""
    beside_others: bool = False
    """Whether it may run at the same time as others' circuits, on other qubits."""
    calibration: Text | None = None
    """The only calibration set that it may run on; with another one, it ends without an answer."""
    calibrated_within: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
    """The most seconds since the device's calibration when it starts; else it ends likewise."""


class SessionForm(BaseModel):
    """A session: a device that only its owner's tasks use for a while."""

    model_config = ConfigDict(extra="forbid")

    device: Text
    seconds: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    """The longest time that it holds the device."""
    idle: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    """The longest time that it holds the device without a task on it."""
    name: Text = ""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    max_wait: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    """Seconds within which it has to begin; it is refused if that cannot be promised."""


class TaskForm(BaseModel):
    """A task."""

    id: str
    name: str
    state: StateName
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
    idle: float | None
    """For a session: the seconds for which it may hold the device idle."""
    session: str | None
    """The session that it belongs to."""
    route: str | None
    """The class of devices that it was submitted to."""
    fidelity: float | None
    """Expected fidelity on its device, if it was submitted to a class of them."""
    beside_others: bool
    """Whether it may run at the same time as others' circuits, on other qubits."""
    beside: int
    """With how many others it began on the device."""
    attempts: int
    submitted: float
    started: float | None
    ended: float | None
    expected_seconds: float
    qpu_seconds: float
    share: float
    """The share of its work that was done before it last gave way to another task."""
    error: str | None
    calibration: str | None
    """The calibration set that it began on."""
    reason: Reason | None = None
    """Why it waits."""
    position: int | None = None
    """Number of tasks ahead of it."""
    expected_start: float | None = None
    expected_end: float | None = None
    answer_format: str | None = None
    answer: Any = None
    number: int | None = None


class EstimateForm(BaseModel):
    """What a task would take, and when it would start, if it were submitted now."""

    device: str
    shots: int
    size: int
    qpu_seconds: float
    """Expected seconds on the device, which are charged."""
    fixed_seconds: float
    seconds_per_shot: float
    known: bool
    """Whether the seconds are known, from the device's timing or from earlier tasks like it."""
    left_afterwards: list[dict[str, Any]]
    """The caller's quotas after the task."""
    reason: Reason
    position: int | None
    expected_start: float | None
    """If nothing else is submitted; None if unknown."""
    expected_end: float | None
    likely_start: list[float] | None
    """With others' likely arrivals: nine of ten tasks start from the first to the last of these."""
    fidelity: float | None = None
    """Expected fidelity on the device that it would go to, for a class of devices."""
    based_on: int
    """Number of earlier starts from which the likely start was learnt."""


class WhyForm(BaseModel):
    """Why a task stands where it stands."""

    id: str
    state: StateName
    reason: Reason | None = None
    policy: str | None = None
    tasks_ahead: int | None = None
    seconds_ahead: float | None = None
    seconds_running: float | None = None
    seconds_promised: float | None = None
    route: dict[str, Any] | None = None
    """The devices that the task may run on, with the fidelity and seconds to expect of each."""
    sentences: list[str]


class TaskList(BaseModel):
    """Tasks, newest first; pass `before` to get the next page."""

    tasks: list[TaskForm]
    before: int | None


class CalibrationForm(BaseModel):
    """A calibration set of a device."""

    id: str
    device: str
    at: float
    metrics: dict[str, float]
    """Fidelities, readout errors and coherence times, by the names that IQM uses."""


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
    """Seconds that a new task would wait behind all others; None if unknown."""
    maintenance: list[MaintenanceWindow]
    """What is planned, or under way."""
    properties: dict[str, Any]
    profile: dict[str, float]
    calibration: CalibrationForm | None


class DrainForm(BaseModel):
    """Why a device is drained."""

    model_config = ConfigDict(extra="forbid")

    reason: Text | None = None
    """The reason shown to users; None keeps the current one."""
    licences: bool = False
    """Let Slurm grant fewer licences, by the number of the device's slots."""


class UsageForm(BaseModel):
    """Usage of a user, account, job or device."""

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
    """What is used of a quota or an allocation, and what is left; None means no limit."""

    of: Literal["user", "account"]
    name: str
    """Of the user or the account; of both, if the allocation is for a user of an account."""
    device: str | None
    """The only device that it is for."""
    period: AllocationPeriod
    tasks: int | None
    """Tasks waiting or running; an allocation does not count them."""
    tasks_left: int | None
    qpu_seconds: float
    """QPU seconds used in the period (UTC) or reserved."""
    qpu_seconds_left: float | None
    until: float
    """When the period ends."""


class NewAllocation(BaseModel):
    """QPU seconds for an account or a user, on one device or all, in a period."""

    model_config = ConfigDict(extra="forbid")

    account: Annotated[str, Field(max_length=200)] = ""
    user: Annotated[str, Field(max_length=200)] = ""
    device: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,63}$")] = ""
    period: AllocationPeriod
    """A day or a month (UTC), each time anew, or a grant, once."""
    seconds: Annotated[float, Field(gt=0, le=1e11, allow_inf_nan=False)]
    start: Annotated[float, Field(ge=0, le=FOREVER, allow_inf_nan=False)] = 0.0
    """When a grant begins and ends."""
    end: Annotated[float, Field(ge=0, le=FOREVER, allow_inf_nan=False)] = FOREVER
    reason: Annotated[str, Field(max_length=200)] = ""


class AllocationForm(BaseModel):
    """An allocation, with what is used, reserved and left of it in its present period."""

    number: int
    account: str | None
    user: str | None
    device: str | None
    period: AllocationPeriod
    since: float
    until: float
    seconds: float
    used: float
    reserved: float
    left: float
    reason: str


class ChargeForm(BaseModel):
    """What one task was charged, or the site for it."""

    task: str
    number: int
    """Of the task, in the order of arrival."""
    name: str
    state: str
    user: str
    account: str
    job: int | None
    device: str
    submitted: float
    began: float
    ended: float
    qpu_seconds: float


class ErrorForm(BaseModel):
    """An error: what was wrong, where, and what to do."""

    error: str
    message: str
    reason: Reason | None = None
    expected_start: float | None = None
    retry_after: float | None = None


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, for its OpenAPI description."""
    known = statuses or (400, 401, 403, 404, 408, 409, 410, 413, 422, 429, 431, 503, 507)
    return {status: {"model": ErrorForm} for status in known}


def inline_schema(form: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI description of a body that the route reads itself."""
    schema = form.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


BYTES: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": {}}}}
MOST_FORM = 16 * 1024
"""Maximum bytes of a request without a payload."""
