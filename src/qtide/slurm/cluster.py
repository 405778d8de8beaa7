"""A stock Slurm cluster: each request is a companion job of its own, with an agent on each node.

Nothing has to be configured or installed on the site for it. Where Slurm admits to the QPU as well,
nodes with a QPU (`beside`) are one heterogeneous job. Else they are had in two steps: nodes first,
then the QPU at once; where that is taken, the nodes go back and the request begins again when it
may be free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from qtide.clusters.cluster import Allocation, Beside, Cluster, NotEnoughNodes
from qtide.clusters.pretend import SCALE
from qtide.jobs.job import Job
from qtide.leases.qpu import Qpu
from qtide.slurm.allocation import AgentFailed, SlurmAllocation
from qtide.slurm.commands import Slurm, SlurmFailed
from qtide.slurm.companion import Companion
from qtide.slurm.leases import SlurmSlots
from qtide.slurm.mark import Driver, job_name, qpu_name
from qtide.slurm.options import Options
from qtide.slurm.queue import partition_size
from qtide.slurm.reaper import cancel, leftovers, reap
from qtide.slurm.requests import Ask, Line
from qtide.slurm.signal import Signal
from qtide.world.real import RealWorld

RECENT = 8
"""How many past waits count for the expected one."""
TRIES = 3
"""How often nodes are asked for whose agents do not start."""
BACKOFF_FIRST, BACKOFF_MOST = 5.0, 60.0
"""Seconds after which nodes with something beside are tried again, if nobody says it is free."""


class SlurmCluster(Cluster):
    """Companions of the jobs of one driver."""

    def __init__(
        self, world: RealWorld, slurm: Slurm, size: int, options: Options, log: Path | None
    ) -> None:
        self.world = world
        self.size = size
        self._slurm = slurm
        self._options = options
        self._log: IO[bytes] | None = log.open("ab") if log else None
        self._asks: set[Ask] = set()
        self._waits: deque[float] = deque(maxlen=RECENT)
        self._live: set[SlurmAllocation] = set()
        self._known: set[str] = set()
        self._freed: dict[Beside, Signal] = {}
        self._line = Line(world, slurm, options.queue_limit)
        self._admitted: dict[Beside, SlurmSlots] = {}

    @staticmethod
    async def connect(
        world: RealWorld,
        options: Options = Options(),  # noqa: B008 - frozen
        *,
        conf: Path | None = None,
        log: Path | None = None,
    ) -> SlurmCluster:
        """The cluster that `conf`, or SLURM_CONF, names; companions of dead drivers are ended."""
        slurm = Slurm(conf, {SCALE: repr(world.scale)})
        slurm.check()
        size = await _size(slurm, options.partition)
        if options.qpu_by is not None:
            await _size(slurm, options.qpu_partition)
        await reap(slurm)
        return SlurmCluster(world, slurm, size, options, log)

    async def request(
        self,
        job: Job,
        nodes: int,
        *,
        least: int | None = None,
        patience: float = 0.0,
        beside: Beside | None = None,
    ) -> Allocation:
        """A companion in Slurm's queue, then an agent on each of its nodes."""
        needed = nodes if least is None else min(least, nodes)
        self._refuse_if_hopeless(job, needed)
        await self._reap_once(job)
        for left in reversed(range(TRIES)):
            allocation = await self._granted(job, nodes, needed, patience, beside)
            try:
                await allocation.ready(self._start_agent)
            except BaseException as error:
                await allocation.release()
                if not (isinstance(error, AgentFailed) and left):
                    raise
            else:
                break
        return allocation

    def expected_wait(self, nodes: int) -> float:
        """As long as those who wait now should, or as the last ones did.

        Slurm supposes that jobs last until their time limit, which companions never do. So while
        we hold nodes ourselves, maybe those that are waited for, its word counts for nothing.
        """
        now, ours = self.world.now(), any(not each.released for each in self._live)
        standing = [max(now - ask.since, 0.0 if ours else ask.expected) for ask in self._asks]
        return max([*standing, sum(self._waits) / max(1, len(self._waits))])

    def forget(self) -> None:
        """Let the waits of earlier jobs no longer count for the expected one."""
        self._waits.clear()

    def admit(self, qpu: Qpu) -> None:
        """Let Slurm say who gets a lease of a QPU, if that is for Slurm to say."""
        if self._options.qpu_by is not None:
            slots = SlurmSlots(qpu, self._line, self._options, self._reap_once)
            self._admitted[qpu] = slots
            qpu.admission = slots

    async def close(self) -> None:
        """Give back everything, also what an answer that was lost has left in the queue."""
        await self.world.settled([self.world.start(each.release()) for each in self._live])
        await self.world.all_of([slots.close() for slots in self._admitted.values()])
        with suppress(SlurmFailed):
            await cancel(self._slurm, await leftovers(self._slurm, self._known))
        if self._log:
            self._log.close()

    async def _granted(
        self, job: Job, nodes: int, least: int, patience: float, beside: Beside | None
    ) -> SlurmAllocation:
        ask = Ask(job, self.world.now(), nodes, least, patience)
        self._asks.add(ask)
        try:
            with job.ledger.span("wait", "nodes", f"{nodes} nodes"):
                allocation = await self._fitting(ask, beside)
        finally:
            self._asks.discard(ask)
        self._waits.append(self.world.now() - ask.since)
        return allocation

    async def _fitting(self, ask: Ask, beside: Beside | None) -> SlurmAllocation:
        if beside is None:
            return self._allocation(ask, await self._companion(ask))
        slots = self._admitted.get(beside)
        return await (self._both(ask, beside) if slots is None else self._together(ask, slots))

    async def _together(self, ask: Ask, slots: SlurmSlots) -> SlurmAllocation:
        """Nodes and a QPU in one heterogeneous job."""
        nodes = f"{ask.nodes}" if ask.least == ask.nodes else f"{max(1, ask.least)}-{ask.nodes}"
        words = [*self._words(ask, nodes), ":", *slots.words(ask.job)]
        companion = await self._line.surely(ask, words)
        allocation = self._allocation(ask, companion)
        allocation.put_beside(slots.lease(ask.job, companion))
        return allocation

    async def _both(self, ask: Ask, beside: Beside) -> SlurmAllocation:
        """Nodes, and the other resource at the same moment, or neither."""
        signal = self._signal(beside)
        pause = BACKOFF_FIRST
        while True:
            moment = signal.moment()
            allocation = self._allocation(ask, await self._companion(ask))
            if allocation.put_beside(beside.take(ask.job)):
                return allocation
            await allocation.release()
            await signal.after(moment, pause)
            pause = min(2 * pause, BACKOFF_MOST)

    def _allocation(self, ask: Ask, companion: Companion | None) -> SlurmAllocation:
        allocation = SlurmAllocation(self.world, ask.job, companion, self._options.silence)
        self._live = {each for each in self._live if not each.released} | {allocation}
        return allocation

    async def _companion(self, ask: Ask) -> Companion | None:
        """All nodes; once patience is over, as many as there are; none if that will do."""
        if ask.least == ask.nodes:
            return await self._line.surely(ask, self._words(ask, f"{ask.nodes}"))
        words = self._words(ask, f"{ask.nodes}")
        companion = await self._line.stand(ask, words, ask.patience * self.world.scale)
        if companion is not None:
            return companion
        if ask.least:
            return await self._line.surely(ask, self._words(ask, f"{ask.least}-{ask.nodes}"))
        words = [*self._words(ask, f"1-{ask.nodes}"), "--immediate"]
        with suppress(SlurmFailed):
            return await self._line.stand(ask, words, self._options.queue_limit)
        return None

    def _words(self, ask: Ask, nodes: str) -> list[str]:
        return self._options.salloc(job_name(ask.job), Driver.own().comment(), nodes)

    def _start_agent(
        self, companion: Companion, node: str
    ) -> Coroutine[Any, Any, asyncio.subprocess.Process]:
        assert companion.job is not None
        words = self._options.srun(companion.job, node, het=companion.qpu_job is not None)
        return self._slurm.start(*words, stdin=asyncio.subprocess.PIPE, stderr=self._log)

    async def _reap_once(self, job: Job) -> None:
        """What an earlier driver of the same run has left."""
        names = {job_name(job), qpu_name(job)}
        if not names <= self._known:
            self._known |= names
            with suppress(SlurmFailed):  # the next driver, or their time limit, will end them
                await reap(self._slurm, names)

    def _signal(self, beside: Beside) -> Signal:
        if beside not in self._freed:
            self._freed[beside] = Signal()
            beside.watch(self._freed[beside].fire)
        return self._freed[beside]

    def _refuse_if_hopeless(self, job: Job, needed: int) -> None:
        if needed > self.size:
            raise NotEnoughNodes(
                f"{job.name} needs {needed} nodes, but Slurm's partition has {self.size}; "
                "ask for fewer with --nodes, or name a larger partition"
            )


async def _size(slurm: Slurm, partition: str | None) -> int:
    size = await partition_size(slurm, partition)
    if not size:
        where = f"partition {partition}" if partition else "default partition"
        raise NotEnoughNodes(f"Slurm's {where} has no node that takes work; sinfo shows why")
    return size
