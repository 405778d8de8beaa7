"""The root's side of a malleable job: requests nodes from the cluster and records those held.

Only the root imports this module; its imports would slow the start of newcomers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
import warnings
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path

from qtide.backends.clusters.cluster import Allocation, Cluster, NodeRequest
from qtide.backends.clusters.kind import ClusterKind, Setting, cluster_kind
from qtide.core.errors import QtideError, UsageError
from qtide.core.files import lock
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger, Span
from qtide.core.world.real import LoopThread, RealWorld
from qtide.mpi.checkpoint import Checkpoint
from qtide.mpi.control import JOIN, ControlServer, own_address
from qtide.mpi.founders import FounderNodes, SlurmStep
from qtide.runs.folder import RunFolder, stamp
from qtide.runs.spec import Spec


@dataclass(frozen=True)
class ProgramStart:
    """How a program was started, and how newcomers start it again."""

    words: list[str]
    restart: Callable[[], list[str]]


class RootRecord:
    """The run of a malleable job: its folder, ledger, control server and nodes."""

    def __init__(
        self,
        runs: Path,
        name: str,
        cluster: str,
        most: int,
        start: ProgramStart,
        *,
        resume: bool = False,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self.kind, argument = cluster_kind(cluster)
        if not self.kind.starts_commands:
            raise UsageError(
                f"a malleable job runs on local, slurm or slurm:PARTITION, not {cluster}"
            )
        self.kind.check(Setting(argument))
        self._setting = Setting(argument, None if argument else most)
        spec = Spec(start.words[0], start.words[1:], "mpi", cluster)
        self.interrupted = _interrupted(runs, spec) if resume else None
        """The last checkpoint of the previous run, if that run was interrupted."""
        self._folder = RunFolder.create(runs, f"{name}-{stamp()}", spec)
        self._lock = os.open(self._folder.journal, os.O_RDWR | os.O_CREAT, 0o644)
        lock(self._lock)  # shows others that the run is active
        self._ledger = Ledger(self._folder.name, time.time, self._folder.ledger)
        self.server = ControlServer(self.kind.address or own_address(), idle)
        self._run = self._ledger.span("run", "job")
        here = f"node/{socket.gethostname()}"
        self._own = [self._ledger.span("held", here), self._ledger.span("busy", here)]
        self._busy: dict[int, Span] = {}
        self._founders = FounderNodes(self.server, {}, None)
        self._ahead: NodeBroker | None = None

    @cached_property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return (self._folder.path / "saved").absolute()

    @cached_property
    def broker(self) -> NodeBroker:
        """The broker, connected to the cluster at first use or by `prepare`."""
        if self._ahead is not None:
            with suppress(Exception):  # what failed then may work now
                self._ahead.connect()
                return self._ahead
        broker = self._new_broker()
        broker.connect()
        return broker

    def prepare(self) -> None:
        """Begin to connect to the cluster, so that the first growth need not wait for that."""
        self._ahead = self._new_broker()

    def _new_broker(self) -> NodeBroker:
        job = JobContext(self._folder.name, self._ledger, self._folder.values)
        first = len(self._founders.held) + 1
        return NodeBroker(self.server, job, self.kind, self._setting, self._start, first)

    def founded(self, names: Sequence[str]) -> None:
        """Record the nodes of the processes that were started with the root."""
        step = SlurmStep.of_this_process(len(names) + 1)
        if step is None:
            sys.stderr.write(
                f"qtide: the nodes of the {len(names) + 1} processes that were started together "
                "are held until the program ends; start one process, and every node can be given "
                "back\n"
            )
        else:
            names = step.nodes[1:]
        held = {}
        for identity, name in enumerate(names, 1):
            held[identity] = self._ledger.span("held", f"node/{name}")
            self._busy[identity] = self._ledger.span("busy", f"node/{name}")
        self._founders = FounderNodes(self.server, held, step)

    def joined(self, newcomers: Collection[Newcomer]) -> dict[str, float]:
        """Record newcomers as members; return the seconds that grant and start took."""
        for each in newcomers:
            self._busy[each.identity] = self._ledger.span("busy", f"node/{each.name}")
        last = max(newcomers, key=lambda each: each.arrived or 0.0)
        assert last.granted is not None
        assert last.arrived is not None
        return {"grant": last.granted - last.asked, "start": last.arrived - last.granted}

    def left(self, members: Collection[int]) -> None:
        """Release the nodes of members that have left."""
        for each in members:
            self._busy.pop(each).close()
            if each not in self._founders.held:
                self.broker.release(each)
        self._founders.release(self._founders.held.keys() & set(members))

    def lost(self, members: Collection[int]) -> None:
        """Release the nodes of lost members and record the loss."""
        self.left(members)
        self._ledger.note("lost nodes", "nodes", lost=len(members), nodes=1 + len(self._busy))

    def changed(self, before: int, after: int, parts: Mapping[str, float]) -> None:
        """Record a change of size, with the seconds that each part took."""
        if after != before:
            what = "grew" if after > before else "shrank"
            self._ledger.note(what, "nodes", before=before, after=after, **parts)

    def close(self, error: BaseException | None) -> None:
        """Release everything; after an error, do not wait for members to leave."""
        if error is None:
            self.server.close()
        else:
            self.server.close(0.0)
        broker = vars(self).get("broker", self._ahead)
        if broker is not None:
            broker.close()
        self._founders.close()
        for span in (*self._busy.values(), *self._own, self._run):
            span.close()
        self._ledger.close()
        self._folder.finish({"value": None} if error is None else {"error": repr(error)})
        os.close(self._lock)


def _interrupted(runs: Path, spec: Spec) -> Checkpoint | None:
    """Return the last checkpoint of the program's newest run, if that run was interrupted."""
    for run in sorted(RunFolder.all(runs), key=lambda each: each.created, reverse=True):
        if run.damage is not None or run.distrust is not None:  # its state is a pickle
            continue
        other = run.spec
        if (other.program, other.words, other.strategy) == (spec.program, spec.words, "mpi"):
            over = run.state in ("done", "running", "new")
            return None if over else Checkpoint.newest((run.path / "saved").absolute())
    return None


POLITE = 3.0
"""Seconds that a process gets to end by itself before it is killed."""
CLOSE_LIMIT = 180.0
"""Seconds within which all nodes must be released."""
OPEN_LIMIT = 60.0
"""Seconds within which the cluster must be opened."""


class NodeBroker:
    """Requests nodes from the cluster one by one and runs the program on each until its release.

    The cluster runs in an event loop in a separate thread, with one task per newcomer.
    """

    def __init__(
        self,
        server: ControlServer,
        job: JobContext,
        kind: ClusterKind,
        setting: Setting,
        start: ProgramStart,
        first: int,
    ) -> None:
        self._server = server
        self._job = job
        self._program = start
        self._identities, self._generations = count(first), count(1)
        self._newcomers: dict[int, Newcomer] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._opened: Future[Cluster] = Future()
        self._closing = asyncio.Event()
        self._stack = ExitStack()
        self._loop = self._stack.enter_context(LoopThread(self._serve(kind, setting)))

    def connect(self) -> None:
        """Wait until the cluster is connected."""
        try:
            self._cluster = self._opened.result(OPEN_LIMIT)
        except BaseException:
            self._stack.close()
            raise

    def grow(self, nodes: int) -> Growth:
        """Request more nodes."""
        generation = next(self._generations)
        newcomers = [Newcomer(next(self._identities), generation) for _ in range(nodes)]
        growth = Growth(newcomers)
        for each in newcomers:
            self._newcomers[each.identity] = each
            self._loop.call(self._start, growth, each)
        return growth

    def cancel(self, growth: Growth) -> None:
        """Dismiss newcomers that are not members yet; reject any that still arrive."""
        for each in growth.newcomers:
            if not each.member:
                each.over = True
                self._server.dismiss(each.identity)
                self._loop.call(self._stop, each)

    def release(self, identity: int) -> None:
        """Release a member's node once its process has ended."""
        self._loop.call(self._newcomers[identity].released.set)

    def close(self) -> None:
        """Release all nodes."""
        if self._opened.done():
            self._loop.call(self._closing.set)
            with suppress(TimeoutError):  # the cluster's own time limits end whatever is left
                self._loop.result()
        self._stack.close()

    async def _serve(self, kind: ClusterKind, setting: Setting) -> None:
        try:
            cluster = await kind.open(RealWorld(), setting)
        except BaseException as error:
            self._opened.set_exception(error)
            return
        self._opened.set_result(cluster)
        await self._closing.wait()
        async with asyncio.timeout(CLOSE_LIMIT):
            for identity in list(self._tasks):
                self._stop(self._newcomers[identity])
            if self._tasks:
                await asyncio.wait(self._tasks.values())
            await cluster.close()

    def _start(self, growth: Growth, newcomer: Newcomer) -> None:
        if not newcomer.over:
            task = asyncio.create_task(self._provide(growth, newcomer))
            self._tasks[newcomer.identity] = task

    def _stop(self, newcomer: Newcomer) -> None:
        newcomer.released.set()
        task = self._tasks.get(newcomer.identity)
        if task is not None and newcomer.granted is None:
            task.cancel()

    async def _provide(self, growth: Growth, newcomer: Newcomer) -> None:
        """Get a node, run the program on it, and release it."""
        try:
            allocation = await self._cluster.grant(NodeRequest(self._job, 1))
            newcomer.granted, newcomer.name = time.monotonic(), allocation.nodes[0].name
            try:
                await self._run(growth, newcomer, allocation)
            finally:
                await allocation.release()
        except QtideError as error:
            warnings.warn(f"the job gets no further node: {error}", stacklevel=1)
        finally:
            newcomer.over = True
            growth.news.set()
            del self._tasks[newcomer.identity]

    async def _run(self, growth: Growth, newcomer: Newcomer, allocation: Allocation) -> None:
        """Run the program on a node until it ends or the node is lost or to be released."""
        (node,) = allocation.nodes
        process: Process | None = None
        starting = self._job.ledger.span("starting", f"node/{node.name}")

        def arrived() -> None:
            newcomer.arrived = time.monotonic()
            starting.close()
            growth.news.set()

        try:
            if not newcomer.released.is_set():
                invitation = self._server.expect(newcomer.identity, newcomer.generation, arrived)
                words = self._program.restart()
                process = await allocation.launch(node, words, {JOIN: invitation})
                await _first_of(process.wait(), _lost(node.lost), newcomer.released.wait())
        finally:
            starting.close()
            newcomer.over = True
            self._server.ended(newcomer.identity)
            if process is not None:
                await _end(process)


async def _lost(loss: Awaitable[str]) -> None:
    await asyncio.shield(asyncio.ensure_future(loss))


async def _first_of(*works: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _end(process: Process) -> None:
    """Wait for a process to end; after `POLITE` seconds, kill it and everything it started."""
    with suppress(TimeoutError):
        async with asyncio.timeout(POLITE):
            await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


POLL = 0.005
"""Seconds between two checks whether newcomers have arrived."""


class Growth:
    """The newcomers of one request for nodes."""

    def __init__(self, newcomers: list[Newcomer]) -> None:
        self.newcomers = newcomers
        self.news = threading.Event()

    @property
    def ready(self) -> list[Newcomer]:
        """Newcomers that have arrived and wait to join."""
        return [each for each in self.newcomers if each.ready]

    @property
    def pending(self) -> bool:
        """Whether more newcomers may arrive."""
        return any(each.pending for each in self.newcomers)

    @property
    def finished(self) -> bool:
        """Whether no newcomer is left to join."""
        return not (self.pending or self.ready)

    def wait(self, seconds: float, watch: Callable[[], None]) -> None:
        """Wait at most `seconds` until all have arrived; `watch`, called meanwhile, may raise."""
        last = time.monotonic() + seconds
        while self.pending and (left := last - time.monotonic()) > 0:
            watch()
            if self.news.wait(min(left, POLL)):
                self.news.clear()


@dataclass(eq=False)
class Newcomer:
    """A process that is to join the job; times are in seconds of the monotonic clock."""

    identity: int
    generation: int
    """The number of its growth; newcomers of a cancelled growth are rejected."""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    asked: float = field(default_factory=time.monotonic)
    granted: float | None = None
    arrived: float | None = None
    over: bool = False
    member: bool = False
    name: str = ""

    @property
    def ready(self) -> bool:
        """Whether it has arrived and waits to join."""
        return self.arrived is not None and not (self.over or self.member)

    @property
    def pending(self) -> bool:
        """Whether it may still arrive."""
        return self.arrived is None and not self.over
