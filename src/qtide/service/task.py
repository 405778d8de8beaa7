"""A task: one payload, or one batch of circuits, on its way through the service."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from qtide.backends.payloads.payload import Encoded
from qtide.core.errors import QtideError
from qtide.core.forecasts import Outlook
from qtide.core.world.world import Future, release


class NotFound(QtideError):  # noqa: N818 - what happened
    """There is no such thing, or it belongs to another user."""


class Gone(NotFound):
    """The task is known, but its payload and answer have been deleted."""


class Forbidden(QtideError):  # noqa: N818 - what happened
    """The caller is known, but may not do this."""


class Conflict(QtideError):  # noqa: N818 - what happened
    """The request contradicts an earlier one, or is ambiguous."""


class CannotPromise(QtideError):  # noqa: N818 - what happened
    """The task would wait longer than its longest wait."""

    def __init__(self, reason: str, start: float | None, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.start = start


CHEAP_QUBITS = 14
"""Up to here, one qubit more takes an emulator hardly longer; beyond, twice as long."""


class Extent(NamedTuple):
    """The size of a task, in powers of two, but for the qubits."""

    bytes: int
    shots: int
    qubits: int
    circuits: int

    @staticmethod
    def of(data: int, shots: int, qubits: int, circuits: int) -> Extent:
        """The extent of a payload of so many bytes."""
        return Extent(data.bit_length(), shots.bit_length(), qubits, circuits.bit_length())

    def beyond(self, other: Extent) -> int:
        """By how many powers of two it should take longer than another."""
        qubits = max(self.qubits, CHEAP_QUBITS) - max(other.qubits, CHEAP_QUBITS)
        return self.bytes - other.bytes + self.shots - other.shots + qubits

    def covers(self, other: Extent) -> bool:
        """Whether it is at least as large as another in every respect."""
        return all(mine >= its for mine, its in zip(self, other, strict=True))

    def distance(self, other: Extent) -> int:
        """How different two are."""
        return sum(abs(mine - its) for mine, its in zip(self, other, strict=True))


class TaskState(StrEnum):
    """Where a task stands."""

    QUEUED = "queued"
    """Accepted: it survives whatever happens to the service."""
    RUNNING = "running"
    """Handed over to the device, or about to be; it has begun once it has a start."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self in (TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED)


@dataclass(frozen=True)
class Caller:
    """Who asks: a user, on behalf of an account, maybe from within a Slurm job."""

    user: str
    account: str = ""
    job: int | None = None
    operator: bool = False


@dataclass(frozen=True)
class Ending:
    """How a task ended."""

    state: TaskState
    at: float
    used: float = 0.0
    error: str | None = None


@dataclass(eq=False, kw_only=True)
class ServiceTask:
    """What is known of a task; its payload and its answer are in the store."""

    id: str
    caller: Caller
    device: str
    format: str
    shots: int
    seed: int
    size: int
    """How many circuits it has."""
    seconds: float
    """How long it should occupy the device."""
    submitted: float
    name: str = ""
    priority: int = 0
    max_wait: float | None = None
    state: TaskState = TaskState.QUEUED
    attempts: int = 0
    """How often it began on the device; only the last attempt may answer."""
    started: float | None = None
    ended: float | None = None
    used: float = 0.0
    """How long it occupied the device, in all attempts: what is charged."""
    error: str | None = None
    handed: int = 0
    """How often it was handed over to the device, by this service."""
    suspect: bool = False
    """Whether its last worker died: it is handed over alone until it is clear which task did it."""
    opened: bool = False
    """Whether its worker has told that it unpacks it, as it does for suspects."""
    extent: Extent | None = None
    """Its size, if its time has to be learnt from others of that size."""
    answer: Encoded | None = field(default=None, repr=False)
    """Kept for waiting callers; all others read it from the store."""
    waiters: list[Future[None]] = field(default_factory=list, repr=False)
    """Futures that are resolved at its end."""

    def end(self, ending: Ending, answer: Encoded | None) -> None:
        """Mark it as over, and tell the waiters."""
        self.answer = answer
        self.state, self.ended, self.used = ending.state, ending.at, ending.used
        self.error = ending.error
        for waiter in self.waiters:
            release(waiter)

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state.over

    @property
    def latest(self) -> float | None:
        """The latest start that was promised."""
        return None if self.max_wait is None else self.submitted + self.max_wait


UNFORESEEABLE = ("down", "maintenance")
"""Reasons of which nobody knows how long they will last."""


@dataclass(frozen=True)
class TaskStanding:
    """`reason` is None for a task on the device; without an outlook, the times are unknown."""

    reason: str | None
    outlook: Outlook | None = None
    not_before: float | None = None
    """For a task that a quota holds back: when the quota may release it."""

    @property
    def start(self) -> float | None:
        """When it is expected to start; None if nobody can know."""
        if self.reason in UNFORESEEABLE:
            return None
        return self.outlook.start if self.outlook else self.not_before

    @property
    def end(self) -> float | None:
        """When it is expected to end; None if nobody can know."""
        if self.reason in UNFORESEEABLE:
            return None
        return self.outlook.end if self.outlook else self.not_before

    @property
    def position(self) -> int | None:
        """How many tasks are ahead of it."""
        return self.outlook.position if self.outlook else None
