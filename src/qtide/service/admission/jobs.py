"""Which Slurm jobs hold a slot of a QPU, and which still do."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from qtide.service.admission.refused import Unreachable
from qtide.slurm import queue, slots
from qtide.slurm.commands import Slurm, SlurmFailed
from qtide.slurm.queue import Entry

LIMIT = 5.0
"""Seconds that slurmctld may take."""

AT_ONCE = 8
"""Queries that slurmctld gets at the same time; it has other things to do."""

ALIVE = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"})
"""States in which a job has started and its processes will continue."""


@dataclass(frozen=True)
class Holder:
    """A job, or a component of a heterogeneous one, by its start: a requeued job is another."""

    job: int
    start: int


@dataclass(frozen=True)
class SlurmJob:
    """A job, or a component of one, with the slots that it holds."""

    entry: Entry
    slots: int

    @staticmethod
    def of(entry: Entry, names: Collection[str]) -> SlurmJob:
        """The names of slots, as licences or as GRES."""
        return SlurmJob(entry, slots.count(entry.licences, entry.gres, entry.nodes, names))

    @property
    def holder(self) -> Holder:
        """The job or component that its slots depend on."""
        return Holder(self.entry.job, int(self.entry.start or 0))

    @property
    def holds(self) -> bool:
        """Whether it has started, has not ended, and has a slot."""
        return self.entry.state in ALIVE and self.slots > 0


class Jobs:
    """The jobs of one cluster."""

    def __init__(
        self, slurm: Slurm, names: Collection[str] = slots.NAMES, limit: float = LIMIT
    ) -> None:
        self._slurm = slurm
        self._names = frozenset(names)
        self._limit = limit
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._asked: dict[int, asyncio.Task[list[SlurmJob]]] = {}

    async def of(self, job: int) -> list[SlurmJob]:
        """The job with that number first, then its other components; empty if there is none.

        All tasks of a step ask at once: Slurm is queried once for all of them.
        """
        if job not in self._asked:
            self._asked[job] = asyncio.create_task(self._of(job))
            self._asked[job].add_done_callback(lambda _: self._asked.pop(job))
        return await asyncio.shield(self._asked[job])

    async def holding(self, holders: Iterable[Holder]) -> set[Holder]:
        """Those that still have a slot, in one query however many they are."""
        known = set(holders)
        if not known:
            return set()
        found = await self._query("--states=RUNNING,SUSPENDED")
        return known & {each.holder for each in found if each.holds}

    async def _of(self, job: int) -> list[SlurmJob]:
        found = await self._query(f"--jobs={job}")
        own = [each for each in found if each.entry.job == job]
        if own and own[0].entry.leader != job:
            found = await self._query(f"--jobs={own[0].entry.leader}")
        parts = [each for each in found if own and each.entry.leader == own[0].entry.leader]
        return own + [each for each in parts if each.entry.job != job]

    async def _query(self, *terms: str) -> list[SlurmJob]:
        try:
            async with self._at_once:
                found = await queue.entries(self._slurm, *terms, limit=self._limit)
        except SlurmFailed as error:
            raise Unreachable(f"Slurm does not answer queries about jobs: {error}") from None
        return [SlurmJob.of(each, self._names) for each in found]
