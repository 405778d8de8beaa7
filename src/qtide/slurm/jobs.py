"""What slurmctld says of jobs: whose they are, whether they run, which slots they hold.

A user chooses a job's name, comment and paths, without accounting also its account, newlines and
all, and `scontrol show job` prints them between the fields that decide. So squeue is asked, for
fields that Slurm alone writes, with a separator that nobody can guess.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from qtide.service.admission.refused import Unreachable
from qtide.slurm import slots
from qtide.slurm.commands import Slurm, SlurmFailed

LIMIT = 5.0
"""Seconds that slurmctld may take."""

AT_ONCE = 8
"""Questions that slurmctld gets at the same time; it has other things to do."""

FIELDS = ("%A", "%i", "%T", "%U", "%S", "%D", "%N", "%b", "%W", "%a")
"""Number, number for people, state, uid, start, nodes, their names, GRES, licences, account."""

ALIVE = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"})
"""States in which a job has begun and its processes will go on."""


@dataclass(frozen=True)
class Holder:
    """A job, or a part of a heterogeneous one, since its start: a requeued job is another."""

    job: int
    start: int


@dataclass(frozen=True)
class SlurmJob:
    """A job, or a part of a heterogeneous one, as slurmctld has it."""

    job: int
    leader: int
    """The first part's number; that of the job itself if it has one part alone."""
    state: str
    uid: int
    start: int
    """Seconds since 1970; 0 if it has not begun."""
    nodes: str
    slots: int
    account: str

    @property
    def holder(self) -> Holder:
        """What its slots hang on."""
        return Holder(self.job, self.start)

    @property
    def holds(self) -> bool:
        """Whether it has begun, has not ended, and has a slot."""
        return self.state in ALIVE and self.slots > 0


class Jobs:
    """The jobs of one cluster."""

    def __init__(
        self, slurm: Slurm, names: Collection[str] = slots.NAMES, limit: float = LIMIT
    ) -> None:
        self._slurm = slurm
        self._names = frozenset(names)
        self._limit = limit
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._asked: dict[int, asyncio.Task[list[SlurmJob]]] = {}

    async def of(self, job: int) -> list[SlurmJob]:
        """The job with that number first, then the other parts of it; none if there is none.

        All tasks of a step come at once: Slurm is asked once for them all.
        """
        if job not in self._asked:
            self._asked[job] = asyncio.create_task(self._of(job))
            self._asked[job].add_done_callback(lambda _: self._asked.pop(job))
        return await asyncio.shield(self._asked[job])

    async def holding(self, holders: Iterable[Holder]) -> set[Holder]:
        """Those that still have a slot, in one question however many they are."""
        asked = set(holders)
        if not asked:
            return set()
        found = await self._ask("--states=RUNNING,SUSPENDED")
        return asked & {each.holder for each in found if each.holds}

    async def _of(self, job: int) -> list[SlurmJob]:
        found = await self._ask(f"--jobs={job}")
        own = [each for each in found if each.job == job]
        if own and own[0].leader != job:
            found = await self._ask(f"--jobs={own[0].leader}")
        parts = [each for each in found if own and each.leader == own[0].leader]
        return own + [each for each in parts if each.job != job]

    async def _ask(self, *terms: str) -> list[SlurmJob]:
        mark = secrets.token_hex(8)
        form = "".join(mark + field for field in FIELDS)
        words = ("squeue", "--noheader", f"--format={form}", *terms)
        try:
            async with self._turns:
                text = await self._slurm.ask(*words, limit=self._limit)
        except SlurmFailed as error:
            if "Invalid job id" in str(error):
                return []
            raise Unreachable(f"Slurm cannot be asked about jobs: {error}") from None
        return list(parse(text, mark, self._names))


def parse(text: str, mark: str, names: Collection[str]) -> Iterator[SlurmJob]:
    """Jobs from what squeue printed, with `mark` before every field."""
    words = [word.strip() for word in text.split(mark)[1:]]
    if len(words) % len(FIELDS):
        raise Unreachable("Slurm's answer about jobs is cut short; ask again")
    for n in range(0, len(words), len(FIELDS)):
        job, shown, state, uid, start, number, nodes, gres, licences, account = words[n:][:10]
        leader, plus, _ = shown.partition("+")
        yield SlurmJob(
            job=int(job),
            leader=int(leader) if plus else int(job),
            state=state,
            uid=int(uid),
            start=int(start) if start.isdecimal() else 0,
            nodes=nodes,
            slots=slots.count(licences, gres, int(number), names),
            account="" if account == "(null)" else account,
        )
