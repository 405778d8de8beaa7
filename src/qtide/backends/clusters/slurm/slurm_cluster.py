"""A stock Slurm as a cluster: every request for nodes becomes a companion, a separate Slurm job.

The cluster requests a companion; the allocation then starts an agent on each of its nodes as a job
step with srun.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from qtide.backends.clusters.cluster import (
    Allocation,
    Cluster,
    CoAllocatable,
    Message,
    Node,
    NodeRequest,
    Work,
)
from qtide.backends.clusters.link import AgentFailed, Link, PreparationFailed
from qtide.backends.clusters.pretend import SCALE
from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed
from qtide.backends.clusters.slurm.companion import Companion, CompanionOptions, Place, Requests
from qtide.backends.clusters.slurm.mark import Driver, cancel, job_name, leftovers, qpu_name, reap
from qtide.backends.clusters.slurm.queue import billing_weights, entries, partition_kind
from qtide.backends.clusters.slurm.slot_jobs import SlurmSlots
from qtide.backends.clusters.slurm.warden import Warden
from qtide.backends.leases.qpu import Qpu
from qtide.core.errors import NodeUnusable, NotEnoughNodes
from qtide.core.forecasts import Waits
from qtide.core.job import JobContext, Preparation
from qtide.core.processes import Child
from qtide.core.resources import NodeKind
from qtide.core.world.real import RealWorld
from qtide.core.world.world import Future, Signal, World

BACKOFF_FIRST, BACKOFF_MOST = 5.0, 60.0
"""Seconds before a co-allocation is retried, unless the other resource is freed earlier."""


QUEUE_PAUSE = 5.0
"""Real seconds between two looks at the queue, for malleable tasks."""


class SlurmCluster(Cluster):
    """Requests and holds companions for the jobs of one driver."""

    def __init__(
        self, world: RealWorld, slurm: Slurm, kind: NodeKind, options: CompanionOptions
    ) -> None:
        self.world = world
        self.kind = kind
        self.size = kind.count
        self._hosts: int | None = None
        """Number of nodes that are divided into parts; None if nodes are whole."""
        self._slurm = slurm
        self._options = options
        self._waits = Waits(world.now)
        self._live: set[SlurmAllocation] = set()
        self._known: set[str] = set()
        self._waiting: dict[CoAllocatable, set[Signal]] = {}
        """Signals of requests that wait for a co-allocated resource."""
        self._requests = Requests(world, slurm, options.queue_limit)
        self._admitted: dict[CoAllocatable, SlurmSlots] = {}
        self._warden = Warden(slurm)
        self._others_waiting = 0
        self._look: Future[None] | None = None
        """The last look at how many jobs of others wait."""
        self._look_again = world.now()

    @staticmethod
    async def connect(
        world: RealWorld,
        options: CompanionOptions = CompanionOptions(),  # noqa: B008 - frozen
        *,
        conf: Path | None = None,
        name: str = "",
    ) -> SlurmCluster:
        """Connect to the cluster named by `conf` or SLURM_CONF; cancel dead drivers' companions.

        `name` is that of its kind of nodes, if it is not the partition's.
        """
        slurm = Slurm(conf, {SCALE: repr(world.scale)})
        slurm.check()
        kind = await _kind(slurm, options.partition)
        if options.qpu_by is not None:
            await _kind(slurm, options.qpu_partition)
        await reap(slurm)
        weights = options.weights or await billing_weights(slurm, kind.name)
        kind = replace(kind, name=name or kind.name, weights=weights)
        options = replace(options, gpus=kind.gpus)
        if options.part is not None:
            kind.refuse_if_impossible(options.part, "a part of a node")
            cluster = SlurmCluster(world, slurm, kind.divided(options.part), options)
            cluster._hosts = kind.count
            return cluster
        return SlurmCluster(world, slurm, kind, options)

    async def grant(self, request: NodeRequest) -> SlurmAllocation:
        """Submit a companion to Slurm and wait until it is granted."""
        job, wanted = request.job, request.co_allocate
        self._refuse_if_impossible(request)
        await self._reap_once(job)
        waiting = job.ledger.span("wait", "nodes", f"{request.nodes} nodes")
        with waiting, self._waits.standing() as wait:
            place = Place(job, wait)
            if wanted is None:
                return self._allocation(job, await self._companion(request, place))
            if wanted in self._admitted:
                return await self._heterogeneous(self._admitted[wanted], request, place)
            return await self._co_allocated(wanted, request, place)

    def expected_wait(self, nodes: int) -> float:
        """Expected wait of current requests, or the waits of the most recent ones.

        Slurm assumes that jobs run until their time limit, which companions never do. So its
        estimate is ignored while we hold nodes, as a request may be waiting for those very nodes.
        """
        ours = any(not each.released for each in self._live)
        return self._waits.expected(announced=not ours)

    def waits_seen(self) -> tuple[float, ...]:
        """Queue waits of recent requests, in seconds."""
        return self._waits.seen()

    def others_waiting(self, job: JobContext) -> int:
        """Number of pending jobs of others when the queue was looked at last."""
        now = self.world.now()
        if now >= self._look_again:
            self._look_again = now + self.world.counted(QUEUE_PAUSE)
            self._look = self.world.start(self._look_at_queue(job))
        return self._others_waiting

    async def _look_at_queue(self, job: JobContext) -> None:
        mine = Driver.own().comment()
        with suppress(SlurmFailed):
            waiting = await entries(self._slurm, "--states=PENDING")
            self._others_waiting = sum(each.comment != mine for each in waiting)

    def forget(self) -> None:
        """Make `expected_wait` ignore the waits of earlier jobs."""
        self._waits.forget()

    def admit(self, qpu: Qpu) -> None:
        """Let Slurm grant a QPU's leases, if the options say so."""
        if self._options.qpu_by is not None:
            slots = SlurmSlots(qpu, self._slurm, self._requests, self._options, self._reap_once)
            self._admitted[qpu] = slots
            qpu.admission = slots

    async def close(self) -> None:
        """Release everything, including queued jobs that we never heard from."""
        await self.world.cancel([] if self._look is None else [self._look])
        await self.world.settled([self.world.start(each.release()) for each in self._live])
        await self.world.all_of([slots.close() for slots in self._admitted.values()])
        with suppress(SlurmFailed):
            await cancel(self._slurm, await leftovers(self._slurm, self._known))
        await self._warden.dismiss()

    async def _companion(self, request: NodeRequest, place: Place) -> Companion | None:
        """Get all nodes or, when patience is over, fewer; None if the request needs none."""
        job, least, most = request.job, request.needed, request.nodes
        if least == most:
            return await self._requests.granted(place, self._salloc(job, f"{most}"))
        patience = request.patience * self.world.scale
        words = self._salloc(job, f"{most}")
        companion = await self._requests.granted_within(patience, place, words)
        if companion is not None:
            return companion
        if least:
            return await self._requests.granted(place, self._salloc(job, f"{least}-{most}"))
        words = [*self._salloc(job, f"1-{most}"), "--immediate"]
        with suppress(SlurmFailed):
            return await self._requests.granted_within(self._options.queue_limit, place, words)
        return None

    async def _heterogeneous(
        self, slots: SlurmSlots, request: NodeRequest, place: Place
    ) -> SlurmAllocation:
        """Get nodes and a QPU in one heterogeneous job."""
        least, most = request.needed, request.nodes
        nodes = f"{most}" if least == most else f"{max(1, least)}-{most}"
        words = self._options.with_qpu(self._salloc(request.job, nodes), slots.words(request.job))
        companion = await self._requests.granted(place, words)
        allocation = self._allocation(request.job, companion)
        allocation.co_allocate(slots.lease(request.job, companion))
        return allocation

    async def _co_allocated(
        self, wanted: CoAllocatable, request: NodeRequest, place: Place
    ) -> SlurmAllocation:
        """Get nodes together with a resource that Slurm does not know, or neither."""
        if wanted not in self._waiting:
            self._waiting[wanted] = set()
            wanted.watch(lambda: self._wake(wanted))
        freed = Signal(self.world)
        self._waiting[wanted].add(freed)
        pause = BACKOFF_FIRST
        try:
            while True:
                freed.clear()  # before trying, so that nothing freed from now on is missed
                allocation = self._allocation(request.job, await self._companion(request, place))
                if allocation.co_allocate(wanted.take(request.job)):
                    return allocation
                await allocation.release()
                await freed.wait(pause / self.world.scale)
                pause = min(2 * pause, BACKOFF_MOST)
        finally:
            self._waiting[wanted].discard(freed)

    def _wake(self, wanted: CoAllocatable) -> None:
        for freed in self._waiting[wanted]:
            freed.set()

    def _allocation(self, job: JobContext, companion: Companion | None) -> SlurmAllocation:
        start, launch, silence = self._start_agent, self._launch, self._options.silence
        allocation = SlurmAllocation(self.world, job, companion, start, launch, silence, self.kind)
        self._live = {each for each in self._live if not each.released} | {allocation}
        return allocation

    def _salloc(self, job: JobContext, nodes: str) -> list[str]:
        return self._options.salloc(job_name(job), Driver.own().comment(), nodes)

    def _start_agent(
        self, companion: Companion, node: str, preparation: Preparation
    ) -> Coroutine[Any, Any, Child]:
        assert companion.job is not None
        het = companion.qpu_job is not None
        words = self._options.srun(companion.job, node, preparation, het=het)
        # saves the site's prolog from asking whether plain nodes come with a QPU
        known = {} if het else {"QTIDE_NO_SLOT": str(companion.job)}
        return Child.start(words, PIPE, self._slurm.environment | known)

    async def _launch(
        self, companion: Companion, node: str, command: Sequence[str], variables: Mapping[str, str]
    ) -> Process:
        assert companion.job is not None
        return await asyncio.create_subprocess_exec(
            *self._options.step(companion.job, node, list(command)),
            stdin=DEVNULL,
            env=self._slurm.environment | dict(variables),
            start_new_session=True,
        )

    async def _reap_once(self, job: JobContext) -> None:
        """Cancel, once per run, what an earlier driver of the run left behind."""
        names = {job_name(job), qpu_name(job)}
        if not names <= self._known:
            self._known |= names
            with suppress(SlurmFailed):  # the next driver or their time limit ends them
                await reap(self._slurm, names)

    def _refuse_if_impossible(self, request: NodeRequest) -> None:
        most = self._hosts
        if most is not None and request.needed > most:
            raise NotEnoughNodes(
                f"{request.job.name} asks for {request.needed} parts of nodes at once, which Slurm "
                f"grants on as many nodes, and there are {most}; say --nodes {most}, or use "
                "--strategy elastic, which asks for one at a time"
            )
        if request.needed > self.size:
            raise NotEnoughNodes(
                f"{request.job.name} needs {request.needed} nodes, but Slurm's partition has "
                f"{self.size}; ask for fewer with --nodes, or name a larger partition"
            )


async def _kind(slurm: Slurm, partition: str | None) -> NodeKind:
    kind = await partition_kind(slurm, partition)
    if not kind.count:
        where = f"partition {partition}" if partition else "default partition"
        raise NotEnoughNodes(f"Slurm's {where} has no node that takes work; sinfo shows why")
    return kind


STEP_LIMIT = 30.0
"""Seconds within which Slurm must end a step."""

Launch = Callable[[Companion, str, Sequence[str], Mapping[str, str]], Coroutine[Any, Any, Process]]
"""Starts a command on a companion's node."""
Start = Callable[[Companion, str, Preparation], Awaitable[Child]]
"""Starts the agent on a companion's node, with its preparation."""


class SlurmAllocation(Allocation):
    """The nodes of a companion, or no nodes at all if the request accepts that."""

    def __init__(
        self,
        world: World,
        job: JobContext,
        companion: Companion | None,
        start: Start,
        launch: Launch,
        silence: float,
        kind: NodeKind,
    ) -> None:
        names = companion.nodes if companion else []
        # companions with parts of nodes may be on the same one
        mark = f"#{companion.job}" if companion and kind.is_part else ""
        nodes = [Node(f"{name}{mark}", world, self, kind) for name in names]
        super().__init__(nodes, world.now())
        self._world = world
        self._companion = companion
        self._job = job
        self._start_agent = start
        self._launch = launch
        self._silence = silence
        self._links: dict[str, Link] = {}
        self._ending: dict[str, Future[None]] = {}
        """Interrupted steps that are still ending, by node name."""
        label = str(companion.job) if companion else ""
        self._held = {node: node.held_by(job, label) for node in nodes}
        self._released: Future[None] | None = None
        self._watch = world.start(self._lose_when_gone())

    def co_allocate(self, taken: Any) -> bool:
        """Store what was granted together with the nodes; False if it is None."""
        self._co_allocated = taken
        return taken is not None

    async def ready(self) -> None:
        """Start all agents and wait until each is prepared."""
        await self._world.all_of([self._start(node) for node in self.nodes])

    def launch(
        self, node: Node, command: Sequence[str], variables: Mapping[str, str]
    ) -> Coroutine[Any, Any, Process]:
        """Start the command as a step of the companion."""
        assert self._companion is not None
        return self._launch(self._companion, _host(node), command, variables)

    def release(self) -> Coroutine[Any, Any, None]:
        """Release the nodes. The release continues even if the caller is cancelled."""
        if self._released is None:
            if self._co_allocated is not None:
                self._co_allocated.release()
            self._released = self._world.start(self._give_back())
        return self._world.settled([self._released])

    @property
    def released(self) -> bool:
        """Whether the release is complete."""
        return self._released is not None and self._released.done()

    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Send the task to the node's agent."""
        self._links[node.name].send(ticket, work)

    def tell(self, node: Node, ticket: int, message: Message) -> None:
        """Tell a task that runs on the node something, through the node's agent."""
        self._links[node.name].tell(ticket, message)

    def interrupt(self, node: Node) -> None:
        """End the agent's step; the companion keeps the node."""
        link = self._links.pop(node.name)
        link.node = None
        link.hang_up()
        self._ending[node.name] = self._world.start(_ended(link))

    def end_task(self, node: Node, ticket: int) -> None:
        """Kill the process of one task; its neighbours and the node's agent stay."""
        link = self._links.get(node.name)
        if link is not None:
            link.end_task(ticket)

    async def renew(self, node: Node, job: JobContext) -> None:
        """Start a new step once the previous one has ended."""
        await self._world.settled([self._ending.pop(node.name)])
        await self._start(node)

    async def _start(self, node: Node) -> None:
        assert self._companion is not None
        child = await self._start_agent(self._companion, _host(node), self._job.preparation)
        link = self._links[node.name] = Link(child, node.name, self._job.log, self._silence)
        try:
            await link.greet(self._job.preparation)
        except AgentFailed as error:
            if not isinstance(error, PreparationFailed):
                self._companion.silent.add(_host(node))
            raise NodeUnusable(f"the agent of node {node.name} did not start") from error
        link.node = node
        node.lost.add_done_callback(lambda _: self._world.start(self._disown(node)))

    async def _disown(self, node: Node) -> None:
        """Stop counting a lost node as held if Slurm has already removed it from the companion."""
        if (
            self._released is None
            and self._companion
            and not await self._companion.has(_host(node))
        ):
            self._held[node].close()

    async def _lose_when_gone(self) -> None:
        """Mark all nodes as lost if the companion is cancelled or reaches its time limit."""
        if self._companion is not None:
            why = await self._companion.gone()
            for node in self.nodes:
                node.lose(f"was taken away by Slurm ({why})")

    def _returned(self, names: set[str], ago: float) -> None:
        """Stop counting nodes as held that were returned to Slurm `ago` seconds ago."""
        since = self._job.ledger.clock() - self._world.counted(ago)
        for node, span in self._held.items():
            if _host(node) in names:
                span.close(since)

    async def _give_back(self) -> None:
        await self._world.cancel([self._watch])
        for node in self.nodes:
            node.lose("was given back")
        for link in self._links.values():  # Slurm's signal does not reach a starting step
            link.hang_up()
        try:
            if self._companion is not None:
                self._companion.on_return = self._returned
                links = ((node, self._links.get(node.name)) for node in self.nodes)
                self._companion.silent |= {
                    _host(node) for node, each in links if each and each.silent
                }
                await self._companion.end()
        finally:
            for span in self._held.values():
                span.close()
            # not earlier: a slurmstepd keeps its node for seconds after its srun is gone
            await self._world.all_of([link.kill() for link in self._links.values()])
            await self._world.settled(self._ending.values())


def _host(node: Node) -> str:
    """Slurm's name of a node, or of the node that it is a part of."""
    return node.name.partition("#")[0]


async def _ended(link: Link) -> None:
    """Wait for the end of a step's srun, which may not end if the node does not respond."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STEP_LIMIT):
            await link.child.ended()
    await link.kill()
