"""A stock Slurm cluster: each request is a companion job of its own, with an agent on each node.

The site has to configure and install nothing for it. If Slurm also grants leases of the QPU, nodes
that are co-allocated with a QPU are one heterogeneous job. Otherwise there are two steps: first the
nodes, then at once the QPU; if that is taken, the nodes go back, and the request starts again when
the QPU may be free.
"""

from __future__ import annotations

from asyncio.subprocess import PIPE
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from qtide.clusters.cluster import Cluster, CoAllocatable, Request
from qtide.clusters.pretend import SCALE
from qtide.errors import NotEnoughNodes
from qtide.forecasts.waits import Waits
from qtide.jobs.job import Job
from qtide.jobs.preparation import Preparation
from qtide.leases.qpu import Qpu
from qtide.slurm.allocation import SlurmAllocation
from qtide.slurm.commands import Slurm, SlurmFailed
from qtide.slurm.companion import Companion
from qtide.slurm.leases import SlurmSlots
from qtide.slurm.mark import Driver, job_name, qpu_name
from qtide.slurm.options import Options
from qtide.slurm.partitions import partition_size
from qtide.slurm.reaper import cancel, leftovers, reap
from qtide.slurm.requests import Place, Requests
from qtide.slurm.signal import Signal
from qtide.slurm.warden import Warden
from qtide.system.child import Child
from qtide.world.real import RealWorld

BACKOFF_FIRST, BACKOFF_MOST = 5.0, 60.0
"""Seconds after which a co-allocation is tried again, if no signal comes before that the other
resource is free."""


class SlurmCluster(Cluster):
    """The companions of the jobs of one driver."""

    def __init__(self, world: RealWorld, slurm: Slurm, size: int, options: Options) -> None:
        self.world = world
        self.size = size
        self._slurm = slurm
        self._options = options
        self._waits = Waits(world.now)
        self._live: set[SlurmAllocation] = set()
        self._known: set[str] = set()
        self._freed: dict[CoAllocatable, Signal] = {}
        self._requests = Requests(world, slurm, options.queue_limit)
        self._admitted: dict[CoAllocatable, SlurmSlots] = {}
        self._warden = Warden(slurm)

    @staticmethod
    async def connect(
        world: RealWorld,
        options: Options = Options(),  # noqa: B008 - frozen
        *,
        conf: Path | None = None,
    ) -> SlurmCluster:
        """The cluster that `conf` or SLURM_CONF names; companions of dead drivers are cancelled."""
        slurm = Slurm(conf, {SCALE: repr(world.scale)})
        slurm.check()
        size = await _size(slurm, options.partition)
        if options.qpu_by is not None:
            await _size(slurm, options.qpu_partition)
        await reap(slurm)
        return SlurmCluster(world, slurm, size, options)

    async def grant(self, request: Request) -> SlurmAllocation:
        """Submit a companion to Slurm, and wait until it is granted."""
        self._refuse_if_hopeless(request)
        await self._reap_once(request.job)
        return await self._granted(request)

    def expected_wait(self, nodes: int) -> float:
        """As long as current requests are expected to wait, or as the last ones did.

        Slurm assumes that jobs run until their time limit, which companions never do. So while we
        hold nodes ourselves, perhaps the very ones waited for, its estimate is ignored.
        """
        ours = any(not each.released for each in self._live)
        return self._waits.expected(announced=not ours)

    def waits_seen(self) -> list[float]:
        """How long requests have stood in the queue lately."""
        return self._waits.seen()

    def forget(self) -> None:
        """Forget the waits of earlier jobs in `expected_wait`."""
        self._waits.forget()

    def admit(self, qpu: Qpu) -> None:
        """Let Slurm grant the leases of a QPU, if the options say so."""
        if self._options.qpu_by is not None:
            slots = SlurmSlots(qpu, self._slurm, self._requests, self._options, self._reap_once)
            self._admitted[qpu] = slots
            qpu.admission = slots

    async def close(self) -> None:
        """Give everything back, including queued jobs of which we never heard."""
        await self.world.settled([self.world.start(each.release()) for each in self._live])
        await self.world.all_of([slots.close() for slots in self._admitted.values()])
        with suppress(SlurmFailed):
            await cancel(self._slurm, await leftovers(self._slurm, self._known))
        await self._warden.dismiss()

    async def _granted(self, request: Request) -> SlurmAllocation:
        with (
            request.job.ledger.span("wait", "nodes", f"{request.nodes} nodes"),
            self._waits.standing() as wait,
        ):
            return await self._fitting(request, Place(request.job, wait))

    async def _fitting(self, request: Request, place: Place) -> SlurmAllocation:
        wanted = request.co_allocate
        if wanted is None:
            return self._allocation(request.job, await self._companion(request, place))
        slots = self._admitted.get(wanted)
        if slots is None:
            return await self._nodes_then(wanted, request, place)
        return await self._heterogeneous(slots, request, place)

    async def _heterogeneous(
        self, slots: SlurmSlots, request: Request, place: Place
    ) -> SlurmAllocation:
        """Nodes and a QPU in one heterogeneous job."""
        least, most = request.needed, request.nodes
        nodes = f"{most}" if least == most else f"{max(1, least)}-{most}"
        words = [*self._words(request.job, nodes), ":", *slots.words(request.job)]
        companion = await self._requests.granted(place, words)
        allocation = self._allocation(request.job, companion)
        allocation.co_allocate(slots.lease(request.job, companion))
        return allocation

    async def _nodes_then(
        self, wanted: CoAllocatable, request: Request, place: Place
    ) -> SlurmAllocation:
        """Nodes together with the other resource, or neither."""
        signal = self._signal(wanted)
        pause = BACKOFF_FIRST
        while True:
            moment = signal.moment()
            companion = await self._companion(request, place)
            allocation = self._allocation(request.job, companion)
            if allocation.co_allocate(wanted.take(request.job)):
                return allocation
            await allocation.release()
            await signal.after(moment, pause)
            pause = min(2 * pause, BACKOFF_MOST)

    def _allocation(self, job: Job, companion: Companion | None) -> SlurmAllocation:
        start, silence = self._start_agent, self._options.silence
        allocation = SlurmAllocation(self.world, job, companion, start, silence)
        self._live = {each for each in self._live if not each.released} | {allocation}
        return allocation

    async def _companion(self, request: Request, place: Place) -> Companion | None:
        """All nodes; once patience is over, as many as are idle; none if the request allows it."""
        job, least, most = request.job, request.needed, request.nodes
        if least == most:
            return await self._requests.granted(place, self._words(job, f"{most}"))
        patience, words = request.patience * self.world.scale, self._words(job, f"{most}")
        companion = await self._requests.granted_within(patience, place, words)
        if companion is not None:
            return companion
        if least:
            return await self._requests.granted(place, self._words(job, f"{least}-{most}"))
        words = [*self._words(job, f"1-{most}"), "--immediate"]
        with suppress(SlurmFailed):
            return await self._requests.granted_within(self._options.queue_limit, place, words)
        return None

    def _words(self, job: Job, nodes: str) -> list[str]:
        return self._options.salloc(job_name(job), Driver.own().comment(), nodes)

    def _start_agent(
        self, companion: Companion, node: str, preparation: Preparation
    ) -> Coroutine[Any, Any, Child]:
        assert companion.job is not None
        het = companion.qpu_job is not None
        words = self._options.srun(companion.job, node, preparation, het=het)
        # a site's prolog need not ask whether plain nodes come with a QPU
        known = {} if het else {"QTIDE_NO_SLOT": str(companion.job)}
        return Child.start(words, PIPE, self._slurm.environment | known)

    async def _reap_once(self, job: Job) -> None:
        """Cancel what an earlier driver of the same run has left."""
        names = {job_name(job), qpu_name(job)}
        if not names <= self._known:
            self._known |= names
            with suppress(SlurmFailed):  # the next driver, or their time limit, ends them
                await reap(self._slurm, names)

    def _signal(self, wanted: CoAllocatable) -> Signal:
        if wanted not in self._freed:
            self._freed[wanted] = Signal()
            wanted.watch(self._freed[wanted].fire)
        return self._freed[wanted]

    def _refuse_if_hopeless(self, request: Request) -> None:
        if request.needed > self.size:
            raise NotEnoughNodes(
                f"{request.job.name} needs {request.needed} nodes, but Slurm's partition has "
                f"{self.size}; ask for fewer with --nodes, or name a larger partition"
            )


async def _size(slurm: Slurm, partition: str | None) -> int:
    size = await partition_size(slurm, partition)
    if not size:
        where = f"partition {partition}" if partition else "default partition"
        raise NotEnoughNodes(f"Slurm's {where} has no node that takes work; sinfo shows why")
    return size
