"""A stock Slurm cluster: each request is a companion job of its own, with an agent on each node.

Nothing has to be configured or installed on the site for it. A heterogeneous grant (`beside`) is
made of two steps: nodes first, then the other resource at once; where that is taken, the nodes go
back and the request begins again when it may be free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from qtide.clusters.cluster import Allocation, Beside, Cluster, NotEnoughNodes
from qtide.clusters.pretend import SCALE
from qtide.clusters.slurm.allocation import AgentFailed, SlurmAllocation
from qtide.clusters.slurm.commands import Slurm, SlurmFailed
from qtide.clusters.slurm.companion import Companion, ControllerAway
from qtide.clusters.slurm.mark import Driver, job_name
from qtide.clusters.slurm.options import Options
from qtide.clusters.slurm.queue import entries, partition_size
from qtide.clusters.slurm.reaper import cancel, leftovers, reap
from qtide.clusters.slurm.signal import Signal
from qtide.programs.job import Job
from qtide.world.real import RealWorld

RECENT = 8
"""How many past waits count for the expected one."""
TRIES = 3
"""How often nodes are asked for whose agents do not start."""
AWAY_LIMIT, AWAY_PAUSE = 300.0, 0.5
"""Seconds that Slurm's controller may be away, and between two tries."""
BACKOFF_FIRST, BACKOFF_MOST = 5.0, 60.0
"""Seconds after which nodes with something beside are tried again, if nobody says it is free."""
OUTLOOK_FIRST, OUTLOOK_MOST = 1.0, 30.0
"""Seconds between two looks at the queue while a request stands in it."""


class QueuedTooLong(NotEnoughNodes):
    """A request stood in Slurm's queue for longer than its user allows."""

    exit_code = 1


@dataclass(eq=False)
class Ask:
    """A request that stands in Slurm's queue."""

    job: Job
    nodes: int
    least: int
    patience: float
    since: float
    expected: float = 0.0
    """How long it should stand there in all, as Slurm sees it."""
    reason: str = "not known"


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
        size = await partition_size(slurm, options.partition)
        if not size:
            where = f"partition {options.partition}" if options.partition else "default partition"
            raise NotEnoughNodes(f"Slurm's {where} has no node that takes work; sinfo shows why")
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
        """As long as those who wait now should, or as the last ones did."""
        now = self.world.now()
        standing = [max(now - ask.since, ask.expected) for ask in self._asks]
        return max([*standing, sum(self._waits) / max(1, len(self._waits))])

    def forget(self) -> None:
        """Let the waits of earlier jobs no longer count for the expected one."""
        self._waits.clear()

    async def close(self) -> None:
        """Give back everything, also what an answer that was lost has left in the queue."""
        await self.world.settled([self.world.start(each.release()) for each in self._live])
        with suppress(SlurmFailed):
            await cancel(self._slurm, await leftovers(self._slurm, self._known))
        if self._log:
            self._log.close()

    async def _granted(
        self, job: Job, nodes: int, least: int, patience: float, beside: Beside | None
    ) -> SlurmAllocation:
        ask = Ask(job, nodes, least, patience, self.world.now())
        self._asks.add(ask)
        try:
            with job.ledger.span("wait", "nodes", f"{nodes} nodes"):
                allocation = await (self._both(ask, beside) if beside else self._nodes(ask))
        finally:
            self._asks.discard(ask)
        self._waits.append(self.world.now() - ask.since)
        return allocation

    async def _both(self, ask: Ask, beside: Beside) -> SlurmAllocation:
        """Nodes, and the other resource at the same moment, or neither."""
        signal = self._signal(beside)
        pause = BACKOFF_FIRST
        while True:
            moment = signal.moment()
            allocation = await self._nodes(ask)
            if allocation.put_beside(beside.take(ask.job)):
                return allocation
            await allocation.release()
            await signal.after(moment, pause)
            pause = min(2 * pause, BACKOFF_MOST)

    async def _nodes(self, ask: Ask) -> SlurmAllocation:
        companion = await self._companion(ask)
        allocation = SlurmAllocation(self.world, ask.job, companion)
        self._live = {each for each in self._live if not each.released} | {allocation}
        return allocation

    async def _companion(self, ask: Ask) -> Companion | None:
        """All nodes; once patience is over, as many as there are; none if that will do."""
        if ask.least == ask.nodes:
            return await self._surely(ask, f"{ask.nodes}")
        limit = ask.patience * self.world.scale
        if (companion := await self._stand(ask, f"{ask.nodes}", limit)) is not None:
            return companion
        if ask.least:
            return await self._surely(ask, f"{ask.least}-{ask.nodes}")
        with suppress(SlurmFailed):
            return await self._stand(
                ask, f"1-{ask.nodes}", self._options.queue_limit, "--immediate"
            )
        return None

    async def _surely(self, ask: Ask, nodes: str) -> Companion:
        """Wait for as long as the user allows."""
        limit = self._options.queue_limit
        companion = await self._stand(ask, nodes, limit)
        if companion is None:
            raise QueuedTooLong(
                f"{ask.job.name} stood in Slurm's queue for {limit:g} s ({ask.reason}) and gave "
                "up; what was done is kept, resume it later"
            )
        return companion

    async def _stand(self, ask: Ask, nodes: str, limit: float, *more: str) -> Companion | None:
        """Stand in the queue for up to `limit` seconds; a controller that is away is waited for."""
        last = asyncio.get_running_loop().time() + AWAY_LIMIT
        while True:
            try:
                return await self._try(ask, nodes, limit, *more)
            except ControllerAway:
                if asyncio.get_running_loop().time() > last:
                    raise
                await asyncio.sleep(AWAY_PAUSE)

    async def _try(self, ask: Ask, nodes: str, limit: float, *more: str) -> Companion | None:
        words = self._options.salloc(job_name(ask.job), Driver.own().comment(), nodes)
        companion = await Companion.ask(self._slurm, [*words, *more])
        outlook = asyncio.create_task(self._look_out(ask, companion))
        try:
            await asyncio.wait({companion.granted}, timeout=limit)
            granted = companion.granted.done() or await companion.withdraw()
            if granted and companion.granted.result():
                return companion
        except BaseException:
            await self.world.settled([self.world.start(companion.end())])
            raise
        finally:
            outlook.cancel()
        await companion.end()
        return None

    async def _look_out(self, ask: Ask, companion: Companion) -> None:
        """Learn when Slurm expects to start it, and why not now."""
        pause = OUTLOOK_FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, OUTLOOK_MOST)
            if companion.job is None:
                continue
            with suppress(SlurmFailed):
                for entry in await entries(self._slurm, f"--jobs={companion.job}"):
                    ask.reason = entry.reason
                    ask.expected = (entry.start or 0.0) / self.world.scale - ask.since

    def _start_agent(self, job: int, node: str) -> Coroutine[Any, Any, asyncio.subprocess.Process]:
        words = self._options.srun(job, node)
        return self._slurm.start(*words, stdin=asyncio.subprocess.PIPE, stderr=self._log)

    async def _reap_once(self, job: Job) -> None:
        """What an earlier driver of the same run has left."""
        name = job_name(job)
        if name not in self._known:
            self._known.add(name)
            with suppress(SlurmFailed):  # the next driver, or their time limit, will end them
                await reap(self._slurm, name)

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
