"""Slots: which jobs may submit payloads to a QPU. Its own queue decides, or a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from qtide.jobs.job import Job


class Slot:
    """The right of one job to submit payloads, until it is given back."""

    token: str | None = None
    """What proves to a service that this slot is held, if whoever granted it can prove that."""
    refusal: str | None = None
    """Why there is no token, if one was asked for."""

    def __init__(self, job: Job, number: int, free: Callable[[int], None], label: str = "") -> None:
        self.number = number
        self._free = free
        self._held = job.ledger.span("held", f"vqpu/{number}", label)

    async def ready(self) -> None:
        """Return once payloads may be submitted: at once, unless the slot was taken away."""

    def release(self) -> None:
        """Give it back."""
        self._held.close()
        self._free(self.number)


class Slots(ABC):
    """Grants slots."""

    @property
    def has_free(self) -> bool:
        """Whether `take` would succeed."""
        return False

    @abstractmethod
    def take(self, job: Job) -> Slot | None:
        """A slot at once; None if the job has to wait."""

    @abstractmethod
    async def acquire(self, job: Job) -> Slot:
        """Wait for a slot."""

    async def returned(self, job: Job) -> None:
        """Wait until what the job has given back has arrived: here, it arrives at once."""
        return

    @abstractmethod
    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever `take` may succeed again."""
