"""Where a job's further nodes come from: this machine, or a companion of Slurm for each."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from pathlib import Path

from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed
from qtide.backends.clusters.slurm.companion import Companion, CompanionOptions, Place, Requests
from qtide.backends.clusters.slurm.mark import Driver, cancel, job_name, leftovers, reap
from qtide.backends.clusters.slurm.warden import Warden
from qtide.core.errors import UsageError
from qtide.core.files import lock
from qtide.core.forecasts import Waits
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger, Span
from qtide.core.world.real import RealWorld
from qtide.mpi.control import JOIN, ControlServer, own_address
from qtide.mpi.membership import Growth, Newcomer
from qtide.mpi.newcomer import command
from qtide.runs.folder import RunFolder, stamp
from qtide.runs.spec import Spec

Process = asyncio.subprocess.Process


class Held(ABC):
    """One node that was granted."""

    name: str
    label = ""

    @abstractmethod
    async def start(self, words: list[str], variables: Mapping[str, str]) -> Process:
        """Start a process on it."""

    @abstractmethod
    async def gone(self) -> None:
        """Return if the node is taken away."""

    @abstractmethod
    async def end(self) -> None:
        """Give it back; returns when that is done."""


class Nodes(ABC):
    """Grants nodes, one at a time, so that each can be given back alone."""

    @abstractmethod
    async def grant(self) -> Held:
        """Wait for a node, for as long as it takes."""

    @abstractmethod
    async def close(self) -> None:
        """All nodes were given back."""


class LocalNodes(Nodes):
    """Processes of this machine; there are as many nodes as are asked for."""

    def __init__(self) -> None:
        self._numbers = count(2)

    async def grant(self) -> Held:
        """At once."""
        return _LocalNode(f"n{next(self._numbers)}")

    async def close(self) -> None:
        """There is nothing to close."""


class _LocalNode(Held):
    def __init__(self, name: str) -> None:
        self.name = name

    async def start(self, words: list[str], variables: Mapping[str, str]) -> Process:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            env=os.environ | dict(variables),
            start_new_session=True,
        )

    async def gone(self) -> None:
        await asyncio.Event().wait()

    async def end(self) -> None:
        return


async def ended(process: Process, limit: float) -> None:
    """Wait until a process has ended; kill it, with all it started, when the limit is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit):
            await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


class SlurmNodes(Nodes):
    """The companions of one job; a warden empties the queue if the job is killed."""

    def __init__(self, slurm: Slurm, options: CompanionOptions, job: JobContext) -> None:
        world = RealWorld()
        self._slurm = slurm
        self._options = options
        self._job = job
        self._waits = Waits(world.now)
        self._requests = Requests(world, slurm, options.queue_limit)
        self._warden = Warden(slurm)

    @staticmethod
    async def open(options: CompanionOptions, job: JobContext) -> SlurmNodes:
        """The Slurm that SLURM_CONF names; companions of dead drivers are cancelled."""
        slurm = Slurm()
        slurm.check()
        await reap(slurm)
        return SlurmNodes(slurm, options, job)

    async def grant(self) -> Held:
        """Submit a companion, and wait until it is granted."""
        words = self._options.salloc(job_name(self._job), Driver.own().comment(), "1")
        with self._waits.standing() as wait:
            companion = await self._requests.granted(Place(self._job, wait), words)
        return _SlurmNode(companion, self._slurm, self._options)

    async def close(self) -> None:
        """Cancel requests of which we never heard, and dismiss the warden."""
        with suppress(SlurmFailed):
            await cancel(self._slurm, await leftovers(self._slurm, {job_name(self._job)}))
        await self._warden.dismiss()


class _SlurmNode(Held):
    def __init__(self, companion: Companion, slurm: Slurm, options: CompanionOptions) -> None:
        assert companion.job is not None
        self.name = companion.nodes[0]
        self.label = str(companion.job)
        self._job = companion.job
        self._companion = companion
        self._slurm = slurm
        self._options = options

    async def start(self, words: list[str], variables: Mapping[str, str]) -> Process:
        return await asyncio.create_subprocess_exec(
            *self._options.step(self._job, self.name, words),
            stdin=asyncio.subprocess.DEVNULL,
            env=self._slurm.environment | dict(variables),
            start_new_session=True,
        )

    async def gone(self) -> None:
        await self._companion.gone()

    async def end(self) -> None:
        await self._companion.end()


POLITE = 3.0
"""Seconds that a process may take to end by itself."""
CLOSE_LIMIT = 180.0
"""Seconds within which all nodes have to be given back."""
OPEN_LIMIT = 60.0
"""Seconds within which the cluster has to be reached."""


class NodeBroker:
    """Has one task per newcomer, from its request until its node is given back."""

    def __init__(
        self, hub: ControlServer, ledger: Ledger, nodes: Callable[[], Awaitable[Nodes]], first: int
    ) -> None:
        self._hub = hub
        self._ledger = ledger
        self._loop = asyncio.new_event_loop()
        self._identities, self._generations = count(first), count(1)
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._known: dict[int, Newcomer] = {}
        threading.Thread(target=self._loop.run_forever, daemon=True, name="keeper").start()
        opening = asyncio.run_coroutine_threadsafe(_opened(nodes), self._loop)
        self._nodes = opening.result(OPEN_LIMIT)

    def grow(self, nodes: int) -> Growth:
        """Ask for so many more nodes."""
        generation = next(self._generations)
        newcomers = [
            Newcomer(next(self._identities), generation, asyncio.Event()) for _ in range(nodes)
        ]
        growth = Growth(generation, newcomers)
        for each in newcomers:
            self._known[each.identity] = each
            self._loop.call_soon_threadsafe(self._begin, growth, each)
        return growth

    def cancel(self, growth: Growth) -> None:
        """Give up what has not been taken in; whoever comes later is turned away."""
        for each in growth.newcomers:
            if not each.taken:
                each.over = True
                self._hub.dismiss(each.identity)
                self._loop.call_soon_threadsafe(self._stop, each)

    def release(self, identity: int) -> None:
        """Give the node of a member back, once its process has ended."""
        who = self._known[identity]
        self._loop.call_soon_threadsafe(who.leave.set)

    def name(self, identity: int) -> str:
        """The node of a member."""
        return self._known[identity].name

    def close(self) -> None:
        """Give everything back."""
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        with suppress(TimeoutError):
            closing.result(CLOSE_LIMIT)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _begin(self, growth: Growth, who: Newcomer) -> None:
        if not who.over:
            task = self._loop.create_task(self._live(growth, who))
            self._lives[who.identity] = task

    def _stop(self, who: Newcomer) -> None:
        who.leave.set()
        task = self._lives.get(who.identity)
        if task is not None and who.granted is None:
            task.cancel()

    async def _live(self, growth: Growth, who: Newcomer) -> None:
        held: Held | None = None
        try:
            with self._ledger.span("wait", "nodes", "1 node"):
                held = await self._nodes.grant()
            who.granted, who.name = time.monotonic(), held.name
            with self._ledger.span("held", f"node/{held.name}", held.label):
                await self._inhabit(growth, who, held)
        finally:
            who.over = True
            growth.news.set()
            self._lives.pop(who.identity, None)

    async def _inhabit(self, growth: Growth, who: Newcomer, held: Held) -> None:
        """Have the program run on a node until it ends or leaves; then give the node back."""
        process: Process | None = None
        starting = self._ledger.span("starting", f"node/{held.name}")

        def arrived() -> None:
            who.arrived = time.monotonic()
            starting.close()
            growth.news.set()

        try:
            if not who.leave.is_set():
                told = self._hub.expect(who.identity, who.generation, arrived)
                process = await held.start(command(sys.orig_argv, sys.argv), {JOIN: told})
                await _first(process.wait(), held.gone(), who.leave.wait())
        finally:
            starting.close()
            who.over = True
            self._hub.lose(who.identity)
            if process is not None:
                await ended(process, POLITE)
            await held.end()

    async def _close(self) -> None:
        for identity in list(self._lives):
            self._stop(self._known[identity])
        if self._lives:
            await asyncio.wait(self._lives.values())
        await self._nodes.close()


async def _opened(nodes: Callable[[], Awaitable[Nodes]]) -> Nodes:
    return await nodes()


async def _first(*works: Awaitable[object]) -> None:
    """Wait for the first of several things."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


class RootRecord:
    """Opened when the root enters its job, closed when it leaves."""

    def __init__(self, runs: Path, name: str, cluster: str) -> None:
        self._name = name
        self._kind, _, self._argument = cluster.partition(":")
        if self._kind not in ("local", "slurm"):
            raise UsageError(
                f"a malleable job runs on local, slurm or slurm:PARTITION, not {cluster}"
            )
        spec = Spec(sys.argv[0], sys.argv[1:], "mpi", cluster)
        self._folder = RunFolder.create(runs, f"{name}-{stamp()}", spec)
        self._lock = os.open(self._folder.journal, os.O_RDWR | os.O_CREAT, 0o644)
        lock(self._lock)  # so that others see that it is running
        self.ledger = Ledger(self._folder.name, time.time, self._folder.ledger)
        self.hub = ControlServer(self._host())
        self._run = self.ledger.span("run", "job")
        here = f"node/{socket.gethostname()}"
        self._own = [self.ledger.span("held", here), self.ledger.span("busy", here)]
        self._busy: dict[int, Span] = {}
        self._founders: dict[int, Span] = {}

    @cached_property
    def saves(self) -> Path:
        """Where the job saves."""
        return (self._folder.path / "saved").absolute()

    @cached_property
    def keeper(self) -> NodeBroker:
        """Started with the first growth."""
        return NodeBroker(self.hub, self.ledger, self._nodes, len(self._founders) + 1)

    def founded(self, names: Sequence[str]) -> None:
        """These nodes were there from the beginning, and are not ours to give back."""
        for identity, name in enumerate(names, 1):
            self._founders[identity] = self.ledger.span("held", f"node/{name}")
            self._busy[identity] = self.ledger.span("busy", f"node/{name}")

    def joined(self, newcomers: Collection[Newcomer], parts: dict[str, float]) -> None:
        """Newcomers are members now."""
        for each in newcomers:
            self._busy[each.identity] = self.ledger.span("busy", f"node/{each.name}")
        last = max(newcomers, key=lambda each: each.arrived or 0.0)
        assert last.granted is not None
        assert last.arrived is not None
        parts |= {"grant": last.granted - last.asked, "start": last.arrived - last.granted}

    def left(self, members: Collection[int]) -> None:
        """Members have left."""
        for each in members:
            self._busy.pop(each).close()
            if each in self._founders:
                self._founders[each].close()
            else:
                self.keeper.release(each)

    def lost(self, members: Collection[int]) -> None:
        """Members are gone."""
        self.left(members)
        self.ledger.note("lost nodes", "nodes", lost=len(members), nodes=1 + len(self._busy))

    def changed(self, before: int, after: int, parts: Mapping[str, float]) -> None:
        """Write a change down, with the seconds of its parts."""
        if after != before:
            what = "grew" if after > before else "shrank"
            self.ledger.note(what, "nodes", before=before, after=after, **parts)

    def close(self, error: BaseException | None) -> None:
        """Give everything back."""
        self.hub.close(None if error is None else 0.0)
        if "keeper" in vars(self):
            self.keeper.close()
        for span in (*self._busy.values(), *self._founders.values(), *self._own, self._run):
            span.close()
        self.ledger.close()
        self._folder.finish({"value": None} if error is None else {"error": repr(error)})
        os.close(self._lock)

    async def _nodes(self) -> Nodes:
        if self._kind == "local":
            return LocalNodes()
        from qtide.backends.clusters.slurm.companion import CompanionOptions

        options = CompanionOptions(partition=self._argument or None)
        return await SlurmNodes.open(options, self._job())

    def _job(self) -> JobContext:
        return JobContext(self._folder.name, self.ledger, self._folder.values)

    def _host(self) -> str:
        if self._kind == "local":
            return "127.0.0.1"
        return own_address()
