"""Slots: who may hand payloads to a QPU. Its own queue says so, or a cluster that admits to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from qtide.jobs.job import Job


class Slot:
    """The right of one job to hand in payloads, from now until it is given back."""

    def __init__(self, job: Job, number: int, free: Callable[[int], None]) -> None:
        self.number = number
        self._free = free
        self._held = job.ledger.span("held", f"vqpu/{number}")

    async def ready(self) -> None:
        """Return once payloads may be handed in: at once, unless it was taken away."""

    def release(self) -> None:
        """Give it back."""
        self._held.close()
        self._free(self.number)


class Slots(ABC):
    """Gives slots."""

    @abstractmethod
    def take(self, job: Job) -> Slot | None:
        """A slot at once; None if whoever wants one has to wait."""

    @abstractmethod
    async def acquire(self, job: Job) -> Slot:
        """Wait for a slot."""

    @abstractmethod
    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever `take` may have become possible."""
