"""A task: one payload, or one batch of circuits, on its way through the service."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from qtide.payloads.encoded import Encoded
from qtide.service.extent import Extent
from qtide.world import Future
from qtide.world.signal import release


class State(StrEnum):
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
        return self in (State.DONE, State.FAILED, State.CANCELLED)


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

    state: State
    at: float
    used: float = 0.0
    error: str | None = None


@dataclass(eq=False, kw_only=True)
class Task:
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
    state: State = State.QUEUED
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
