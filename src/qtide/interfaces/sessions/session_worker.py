"""What drives the world of a session: a thread beside the script; in virtual time, its waits."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, closing, suppress
from typing import Any, Protocol

from qtide.core.errors import QtideError
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.log import Log
from qtide.core.world import world as worlds
from qtide.core.world.real import LoopThread
from qtide.core.world.virtual import Stuck, VirtualWorld
from qtide.core.world.world import World
from qtide.interfaces.sessions.calls import Batches, Chunks, Outcome, SessionCall, batch
from qtide.interfaces.sessions.session_records import Records
from qtide.programs.phase import Phase, Quantum
from qtide.programs.replay import Candidates, Choices, ReplayStep
from qtide.runs.driver import Tell
from qtide.runs.earlier import recall, remember
from qtide.runs.folder import RunFolder
from qtide.strategies.site import Site
from qtide.strategies.strategy import Assignment, Strategy, strategy


class SessionLoop(Protocol):
    """Runs the main coroutine of a session."""

    one_thread: bool
    """Whether the thread that opened the session is the only one that can use it."""

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Begin."""

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function within the world."""

    def soon(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something within the world, after so many real seconds; never in virtual time."""

    def attend(self, future: Future[Any]) -> None:
        """The script is about to wait for a future."""

    def end(self, *, cancel: bool) -> None:
        """Return when the main coroutine has ended."""


class ThreadedLoop:
    """Real time passes in a thread."""

    one_thread = False

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Start the thread."""
        self._aside = LoopThread(main).__enter__()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call it there, soon."""
        self._aside.call(function, *args)

    def soon(self, seconds: float, action: Callable[[], object]) -> None:
        """A timer of its event loop."""
        self.call(lambda: asyncio.get_running_loop().call_later(seconds, action))

    def attend(self, future: Future[Any]) -> None:
        """Time passes by itself."""

    def end(self, *, cancel: bool) -> None:
        """Wait for the thread."""
        if cancel:
            self._aside.cancel()
        self._aside.wait()


class SteppedLoop:
    """Virtual time passes while the script waits, in its own thread."""

    one_thread = True

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Nothing happens yet."""
        self._main = self._world.start(main)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """The world stands still: call it here."""
        function(*args)

    def soon(self, seconds: float, action: Callable[[], object]) -> None:
        """The script waits sooner or later, and no time passes before."""

    def attend(self, future: Future[Any]) -> None:
        """Let time pass until it is done."""
        gate = self._world.future()
        future.add_done_callback(lambda _: gate.set_result(None))
        self._world.run(self._world.settled([gate]))

    def end(self, *, cancel: bool) -> None:
        """Let time pass until the main coroutine has ended."""
        if cancel:
            self._main.cancel()
        with suppress(Stuck):
            self._world.run(self._world.settled([self._main]))


def engine_for(world: World) -> SessionLoop:
    """What drives that kind of world."""
    if not world.is_virtual:
        return ThreadedLoop()
    assert isinstance(world, VirtualWorld)
    return SteppedLoop(world)


Opening = Callable[[], AbstractAsyncContextManager[Site]]
"""Puts up the site of a session."""


class SessionWorker:
    """From the opening of a session to its end; all but `ready` belongs to the world."""

    def __init__(
        self, run: RunFolder, world: worlds.World, opening: Opening, records: Records, tell: Tell
    ) -> None:
        self.ready: Future[Site] = Future()
        self._run = run
        self._world = world
        self._opening = opening
        self._records = records
        self._tell = tell
        self._works: dict[worlds.Future[None], tuple[SessionCall, ...]] = {}
        self._closed: worlds.Future[None] | None = None

    async def main(self) -> None:
        """Hold everything until the script is over; then give everything back."""
        try:
            async with self._opening() as site:
                with closing(Ledger(self._run.name, self._world.now, self._run.ledger)) as ledger:
                    self._closed = self._world.future()
                    work = self._open(site, ledger)
                    await self._run.presence.during(self._world, work, ledger.beat)
        except BaseException as error:
            if not self.ready.done():
                self.ready.set_exception(error)
            if isinstance(error, CancelledError):
                raise
        finally:
            self._give_up()

    def close(self) -> None:
        """The script is over."""
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def begin(self, calls: Sequence[SessionCall], least: int) -> None:
        """Perform calls of functions."""
        running = [call for call in calls if call.future.set_running_or_notify_cancel()]
        if running:
            self._start(self._classical(running, least), *running)

    def begin_quantum(self, call: SessionCall, phase: Quantum) -> None:
        """Perform the call of a payload."""
        if call.future.set_running_or_notify_cancel():
            self._start(self._quantum(call, phase), call)

    def ask(self, question: Callable[[], Coroutine[Any, Any, Any]], answer: Future[Any]) -> None:
        """Have something asked within the world that is no phase."""

        async def asked() -> None:
            try:
                answer.set_result(await question())
            except Exception as error:
                answer.set_exception(error)

        self._start(asked())

    async def _open(self, site: Site, ledger: Ledger) -> None:
        run, spec = self._run, self._run.spec
        lessons = recall(run)
        real = not self._world.is_virtual
        log = Log(run.log, None if real else lambda: f"{self._world.now():.3f}")
        self._job = JobContext(run.name, ledger, run.values, spec.seed, lessons.preparation, log)
        nodes = spec.nodes or site.cluster.size
        assignment = Assignment(site, self._job, nodes)
        performer = strategy(spec.strategy, assignment, spec.options)
        self._candidates = Candidates(performer, ledger, Choices(self._records))
        lessons.teach(performer.forecast)
        self._chunks = Chunks(nodes) if real else None
        with ledger.span("run", "driver", spec.strategy):
            await self._hold(site, performer)

    async def _hold(self, site: Site, performer: Strategy) -> None:
        assert self._closed is not None
        try:
            await performer.open()
            self.ready.set_result(site)
            await self._closed
        finally:
            await self._end_works()
            await performer.close()
            remember(self._run, self._job.preparation, performer.forecast)

    async def _end_works(self) -> None:
        """End what the script no longer waits for; what has its results only gives back."""
        waited = [
            work
            for work, calls in self._works.items()
            if not all(call.future.done() for call in calls)
        ]
        await self._world.cancel(waited)
        await self._world.settled(list(self._works))

    def _start(self, work: Coroutine[Any, Any, None], *calls: SessionCall) -> None:
        if self._closed is None or self._closed.done():
            work.close()
            self._refuse(calls)
            return
        started = self._world.start(work)
        self._works[started] = calls
        started.add_done_callback(self._ended_work)

    def _ended_work(self, work: worlds.Future[None]) -> None:
        self._refuse(self._works.pop(work, ()))
        if not work.cancelled():
            work.exception()  # its calls know it

    async def _classical(self, calls: list[SessionCall], least: int) -> None:
        if self._chunks is None or least > 1:
            size = least
            await self._phase([calls[n : n + size] for n in range(0, len(calls), size)])
            return
        probes = self._chunks.probes(calls)
        if not probes:
            await self._phase(self._chunks.divided(calls))
            return
        first = self._world.start(self._phase([[call] for call in calls[:probes]]))
        await self._first_of(calls[:probes])
        try:
            await self._phase(self._chunks.divided(calls[probes:]))
        finally:
            await self._world.settled([first])

    async def _first_of(self, calls: Sequence[SessionCall]) -> None:
        """Wait until one of them has ended."""
        known = self._world.future()

        def tell(_: object) -> None:
            if not known.done():
                known.set_result(None)

        for each in calls:
            each.future.add_done_callback(tell)
        await known

    async def _phase(self, chunks: Sequence[Sequence[SessionCall]]) -> None:
        calls = [call for chunk in chunks for call in chunk]
        phase = Batches(tuple(batch(chunk, self._ended) for chunk in chunks))
        try:
            await self._perform(phase, calls[0].key)
        except Exception as error:  # each call that had a node knows its own
            left = [call for call in calls if not call.future.done()]
            if left and len(chunks) < len(calls):  # one of them cannot be sent, or kills its node
                await self._phase([[call] for call in left])
            else:
                self._ended([(call, None, error) for call in left], 0.0)

    async def _quantum(self, call: SessionCall, phase: Quantum) -> None:
        try:
            outcome: Outcome = (call, await self._perform(phase, call.key), None)
            self._ended([outcome], 0.0)
        except Exception as error:
            self._ended([(call, None, error)], 0.0)

    async def _perform(self, phase: Phase, key: str) -> Any:
        self._say("begun", key, phase)
        try:
            result = await self._candidates.perform(phase, key)
        except Exception:
            self._say("failed", key, phase)
            raise
        self._say("done", key, phase)
        return result

    def _say(self, state: Any, key: str, phase: Phase) -> None:
        self._tell(self._run.name, ReplayStep(state, key, phase), self._world.now())

    def _ended(self, outcomes: Sequence[Outcome], seconds: float) -> None:
        """Keep what became of calls, then tell the script."""
        if self._chunks is not None and seconds:
            self._chunks.learn(outcomes[0][0].name, seconds / len(outcomes))
        self._records.keep(outcomes)
        for call, value, error in outcomes:
            call.future.resolve(value, error)

    def _give_up(self) -> None:
        for calls in list(self._works.values()):
            self._refuse(calls)

    def _refuse(self, calls: Sequence[SessionCall]) -> None:
        for call in calls:
            call.future.resolve(
                None, QtideError(f"the session {self._run.name} ended before call {call.key} did")
            )
