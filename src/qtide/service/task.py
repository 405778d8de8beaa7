"""A task of the service: one payload, or one batch of circuits; and who may do what with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from qtide.backends.payloads.payload import Encoded
from qtide.core.errors import QtideError
from qtide.core.forecasts import Outlook
from qtide.core.world.world import Future, release


class NotFound(QtideError):  # noqa: N818 - named after what happened
    """It does not exist, or belongs to another user."""


class Gone(NotFound):
    """The task exists, but its payload and answer have been deleted."""


class Forbidden(QtideError):  # noqa: N818 - named after what happened
    """The caller is known, but may not do this."""


class Conflict(QtideError):  # noqa: N818 - named after what happened
    """The request contradicts an earlier one, or is ambiguous."""


class CannotPromise(QtideError):  # noqa: N818 - named after what happened
    """The task cannot be promised a start within its maximum wait."""

    def __init__(self, reason: str, start: float | None, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.start = start


CHEAP_QUBITS = 14
"""Qubits beyond which each further one doubles an emulator's time; below, it hardly matters."""


class Extent(NamedTuple):
    """The size of a task, in powers of two except for the qubits."""

    bytes: int
    shots: int
    qubits: int
    circuits: int

    @staticmethod
    def of(data: int, shots: int, qubits: int, circuits: int) -> Extent:
        """The extent of a payload of `data` bytes."""
        return Extent(data.bit_length(), shots.bit_length(), qubits, circuits.bit_length())

    def beyond(self, other: Extent) -> int:
        """By how many powers of two it should take longer than the other."""
        qubits = max(self.qubits, CHEAP_QUBITS) - max(other.qubits, CHEAP_QUBITS)
        return self.bytes - other.bytes + self.shots - other.shots + qubits

    def covers(self, other: Extent) -> bool:
        """Whether it is at least as large as the other in every dimension."""
        return all(mine >= its for mine, its in zip(self, other, strict=True))

    def distance(self, other: Extent) -> int:
        """How much two extents differ."""
        return sum(abs(mine - its) for mine, its in zip(self, other, strict=True))


class TaskState(StrEnum):
    """The state of a task."""

    QUEUED = "queued"
    """Accepted and durable: it survives a crash of the service."""
    RUNNING = "running"
    """Handed over to the device, or about to be; it has begun once `started` is set."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether the task has ended."""
        return self in (TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED)


@dataclass(frozen=True)
class Caller:
    """A user on behalf of an account, possibly from within a Slurm job."""

    user: str
    account: str = ""
    job: int | None = None
    operator: bool = False


RESERVED = ("operator", "anonymous")
"""Users of the service itself: whoever has the name sees their tasks."""


def is_name(text: str) -> bool:
    """Whether a name can be shown and written down, and is not one of the service's own."""
    plain = 0 < len(text) <= 100 and text.isprintable() and text == text.strip()
    return plain and "(" not in text and text not in RESERVED


@dataclass(frozen=True)
class CalibrationSet:
    """What a device was calibrated to at a time, with the quality of its gates and readout."""

    id: str
    at: float
    metrics: dict[str, float] = field(default_factory=dict)


class CalibrationTerms(NamedTuple):
    """Which calibration set a task accepts."""

    id: str | None = None
    """The only one that it accepts."""
    within: float | None = None
    """The most seconds that may have passed since the calibration when the task starts."""

    def why_not(self, found: CalibrationSet | None, now: float) -> str | None:
        """Why a task may not run on a calibration set, as the end of a sentence; None if it may."""
        if self == ANY_CALIBRATION:
            return None
        if found is None:
            return "wants a certain calibration, but the device has none yet"
        if self.id not in (None, found.id):
            return f"wants the calibration set {self.id}, but the device has {found.id} now"
        age = now - found.at
        if self.within is not None and age > self.within:
            return f"wants a calibration of the last {self.within:g} s, but it is {age:.0f} s old"
        return None


ANY_CALIBRATION = CalibrationTerms()


ANY = "any:"
"""Before the name of a class of devices, in place of a device's name."""


class RouteOption(NamedTuple):
    """What to expect of a task on one of several devices."""

    fidelity: float | None
    """Expected fidelity of its circuits; None if the device cannot tell."""
    seconds: float


@dataclass(frozen=True)
class Route:
    """The devices of a class that a task may run on."""

    kind: str
    floor: float | None
    """The least fidelity that the user accepts."""
    options: dict[str, RouteOption]

    def fidelity(self, device: str) -> float:
        """Expected fidelity on a device; 1 if it is not known."""
        found = self.options[device].fidelity
        return 1.0 if found is None else found

    def acceptable(self, loss: float) -> Route:
        """Leave out the devices below the floor or, without one, far below the best."""
        floor = self.floor
        if floor is None:
            floor = (1 - loss) * max(map(self.fidelity, self.options))
        good = {name: each for name, each in self.options.items() if self.fidelity(name) >= floor}
        return Route(self.kind, self.floor, good)

    def to_json(self) -> str:
        """The route as JSON, for the store."""
        return json.dumps([self.kind, self.floor, self.options])

    @staticmethod
    def from_json(text: str) -> Route:
        """Restore a route."""
        kind, floor, options = json.loads(text)
        return Route(kind, floor, {name: RouteOption(*each) for name, each in options.items()})


@dataclass(frozen=True)
class Ending:
    """How a task ended."""

    state: TaskState
    at: float
    used: float = 0.0
    error: str | None = None


class Booking(NamedTuple):
    """An occupation of the device, and who pays for it."""

    began: float
    seconds: float
    cause: str = ""
    """Why the site pays: nobody is to blame; empty if the task's owner does."""


class Company(NamedTuple):
    """How a task divides the time on the device with others that run there at the same time."""

    rate: float
    """Seconds that it is charged for each second that it takes alone."""
    part: float
    """Its part of the time of all of them."""
    others: int
    first: bool
    """Whether it is the one whose turn it was."""


@dataclass(eq=False, kw_only=True)
class ServiceTask:
    """A task without its payload and answer, which are in the store."""

    id: str
    caller: Caller
    device: str
    format: str
    shots: int
    seed: int
    size: int
    """Number of circuits."""
    seconds: float
    """Expected seconds on the device."""
    submitted: float
    name: str = ""
    idle: float | None = None
    """For a session: the seconds that it may hold the device without a task on it."""
    session: str | None = None
    """The session that it belongs to, whose device it gets at once."""
    route: Route | None = None
    """The devices that it may run on, if its user named a class of them."""
    moves: int = 0
    """How often it moved to another device while it waited, since the service started."""
    priority: int = 0
    max_wait: float | None = None
    width: int | None = None
    """The qubits that it takes beside others' circuits; None if it has to have the device alone."""
    company: Company | None = None
    """The others that are on the device with it now."""
    beside: int = 0
    """How many others it began with."""
    terms: CalibrationTerms = ANY_CALIBRATION
    calibration: str | None = None
    """The calibration set that it began on."""
    state: TaskState = TaskState.QUEUED
    attempts: int = 0
    """How often it began on the device; only the last attempt's answer counts."""
    started: float | None = None
    ended: float | None = None
    used: float = 0.0
    """Seconds it occupied the device in all attempts, which are charged."""
    share: float = 0.0
    """The share of its work that was done before it last gave way to another task."""
    progress: int = 0
    """The same in the units of its device: shots, or parts of its payload."""
    error: str | None = None
    handed: int = 0
    """How often this service handed it over to the device."""
    suspect: bool = False
    """Whether its last worker died; such tasks run alone until it is clear which one caused it."""
    unbooked: list[Booking] = field(default_factory=list, repr=False)
    """Its occupations of the device that are not in the store yet."""
    opened: bool = False
    """Whether its worker has reported unpacking it, as workers do for suspects."""
    extent: Extent | None = None
    """Its size, if its duration has to be learnt from similar tasks."""
    answer: Encoded | None = field(default=None, repr=False)
    """The answer, kept for waiting callers; all others read it from the store."""
    waiters: list[Future[None]] = field(default_factory=list, repr=False)
    """Futures to resolve at its end."""

    def end(self, ending: Ending, answer: Encoded | None) -> None:
        """Mark it as ended, and release the waiters."""
        self.answer = answer
        self.state, self.ended, self.used = ending.state, ending.at, ending.used
        self.error = ending.error
        for waiter in self.waiters:
            release(waiter)

    @property
    def ticket(self) -> str:
        """The identifier of its answer: the task and the number of its hand-over."""
        return f"{self.id}:{self.handed}"

    @property
    def over(self) -> bool:
        """Whether the task has ended."""
        return self.state.over

    @property
    def left(self) -> float:
        """Expected seconds on the device, for which it pays, for what is left of its work."""
        return self.left_alone * (1.0 if self.company is None else self.company.rate)

    @property
    def left_alone(self) -> float:
        """The same, if it has the device alone."""
        return self.seconds * (1.0 - self.share)

    @property
    def latest(self) -> float | None:
        """The latest start promised, if any."""
        return None if self.max_wait is None else self.submitted + self.max_wait


def check_operates(caller: Caller) -> None:
    """Raise `Forbidden` unless the caller is an operator."""
    if not caller.operator:
        raise Forbidden(
            f"{caller.user} is not an operator of this service; its own user makes a token for "
            "one: qtide token new NAME --operator"
        )


def whose(caller: Caller, *, everybody: bool) -> str | None:
    """The user whose tasks and usage to show; None, for operators only, means all users."""
    if not everybody:
        return caller.user
    check_operates(caller)
    return None


def sees(caller: Caller, task: ServiceTask) -> bool:
    """Whether a caller may see and cancel a task; it stays hidden from everybody else."""
    return caller.operator or owns(caller, task)


def owns(caller: Caller, task: ServiceTask) -> bool:
    """Whether a task, with its payload and answer, belongs to the caller."""
    return task.caller.user == caller.user


def check_owns(caller: Caller, task: ServiceTask) -> None:
    """Raise `NotFound` unless the caller owns the task; not even operators see payloads."""
    if not owns(caller, task):
        raise NotFound(f"the task {task.id!r} belongs to another user; operators see no payloads")


UNFORESEEABLE = ("down", "maintenance")
"""Reasons for waiting that last for an unknown time."""


@dataclass(frozen=True)
class TaskStanding:
    """Why a task waits, and what to expect.

    `reason` is None for a task on the device; without an outlook, the times are unknown.
    """

    reason: str | None
    outlook: Outlook | None = None
    not_before: float | None = None
    """When the quota that holds the task back may release it."""

    @property
    def start(self) -> float | None:
        """Expected start; None if unknown."""
        if self.reason in UNFORESEEABLE:
            return None
        return self.outlook.start if self.outlook else self.not_before

    @property
    def end(self) -> float | None:
        """Expected end; None if unknown."""
        if self.reason in UNFORESEEABLE:
            return None
        return self.outlook.end if self.outlook else self.not_before

    @property
    def position(self) -> int | None:
        """Number of tasks ahead of it."""
        return self.outlook.position if self.outlook else None


class AnswerExtent(NamedTuple):
    """Format, size and location of an answer that has not been read yet."""

    format: str
    size: int
    row: int | None
    """Its row in the store; None while the answer is in memory."""
