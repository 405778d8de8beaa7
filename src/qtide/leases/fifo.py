"""A QPU's own slots: a fixed number, first come, first served."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Callable

from qtide.jobs.job import Job
from qtide.leases.slots import Slot, Slots
from qtide.world.world import Future, World


class FifoSlots(Slots):
    """Slots that live in this process."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._numbers = list(range(number))
        self._waiting: deque[tuple[Job, Future[Slot]]] = deque()
        self._watchers: list[Callable[[], None]] = []

    @property
    def has_free(self) -> bool:
        """Whether a slot is free and no job waits for it."""
        return bool(self._numbers) and not self._waiting

    def take(self, job: Job) -> Slot | None:
        """A slot at once, if one is free."""
        if not self.has_free:
            return None
        return Slot(job, self._numbers.pop(0), self._free)

    async def acquire(self, job: Job) -> Slot:
        """Wait in the queue."""
        answer: Future[Slot] = self._world.future()
        self._waiting.append((job, answer))
        try:
            return await answer
        except CancelledError:
            if answer.done() and not answer.cancelled():
                answer.result().release()
            else:
                self._waiting.remove((job, answer))
            raise

    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever a slot is free and no job waits for it."""
        self._watchers.append(freed)

    def _free(self, number: int) -> None:
        """Give the slot to the next in the queue."""
        if self._waiting:
            job, answer = self._waiting.popleft()
            answer.set_result(Slot(job, number, self._free))
            return
        self._numbers = sorted([*self._numbers, number])
        for freed in self._watchers:
            freed()
