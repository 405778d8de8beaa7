"""The worker of a session: runs the script's calls under a strategy, within the world."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, fields
from typing import Any, Literal

from qtide.core.errors import QtideError
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.log import Log
from qtide.core.resources import ROUNDING
from qtide.core.world import world as worlds
from qtide.interfaces.sessions.call_batch import CallBatch, CallPhase, Outcome
from qtide.interfaces.sessions.session_call import SessionCall
from qtide.interfaces.sessions.session_records import SessionRecords
from qtide.programs.calls import Initializer, InitializerFailed
from qtide.programs.phase import Phase, Quantum
from qtide.programs.replay import Candidates, Choices, ReplayStep
from qtide.runs.driver import Tell
from qtide.runs.earlier import recall, remember
from qtide.runs.folder import RunFolder
from qtide.strategies.site import Site
from qtide.strategies.strategy import Assignment, strategy
from qtide.strategies.task_batch import BatchSizes

OpenSite = Callable[[], AbstractAsyncContextManager[Site]]
"""Opens the site of a session."""


class SessionWorker:
    """Runs a session's calls; the script's thread may read only `ready` and `broken`.

    The path of a call: `begin` starts the work on a burst of calls; `_classical` divides them into
    batches; `_phase` lets the strategy run these; `_end` records the outcomes and returns them.
    """

    def __init__(
        self,
        run: RunFolder,
        world: worlds.World,
        open_site: OpenSite,
        records: SessionRecords,
        tell: Tell,
        initializer: Initializer | None = None,
    ) -> None:
        self.ready: Future[Site] = Future()
        self.at_once = 1
        """Number of calls that can run at the same time, once `ready`."""
        self.broken: BrokenExecutor | None = None
        """The reason why no further call can be made."""
        self._run = run
        self._world = world
        self._open_site = open_site
        self._records = records
        self._tell = tell
        self._initializer = initializer
        self._works: dict[worlds.Future[None], CallWork] = {}
        self._work_of: dict[SessionCall, CallWork] = {}
        self._first_ends: dict[SessionCall, worlds.Future[None]] = {}
        self._closed: worlds.Future[None] | None = None

    async def main(self) -> None:
        """Open the site, serve the script until it ends, then release everything."""
        try:
            async with self._open_site() as site:
                with closing(Ledger(self._run.name, self._world.now, self._run.ledger)) as ledger:
                    self._closed = self._world.future()
                    work = self._serve(site, ledger, self._closed)
                    await self._run.presence.during(self._world, work, ledger.beat)
        except BaseException as error:
            if not self.ready.done():
                self.ready.set_exception(error)
            if isinstance(error, CancelledError):
                raise
        finally:
            self._refuse(list(self._work_of))

    def close(self) -> None:
        """End the worker: the script is over."""
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def begin(self, calls: list[SessionCall], least: int) -> None:
        """Run function calls; `least` is the minimum batch size."""
        self._start(self._classical(calls, least), calls)

    def begin_quantum(self, call: SessionCall, phase: Quantum) -> None:
        """Run a payload on the QPU."""
        terms = {each.name: getattr(phase, each.name) for each in fields(phase)}
        self._start(self._quantum(call, CallPayload(**terms, call=call)), [call])

    def ask(self, question: Callable[[], Coroutine[Any, Any, Any]], answer: Future[Any]) -> None:
        """Await a coroutine within the world that is not a phase."""

        async def asked() -> None:
            try:
                answer.set_result(await question())
            except Exception as error:
                answer.set_exception(error)

        self._start(asked(), [])

    def drop_cancelled(self) -> None:
        """Cancel work whose calls were all cancelled before any was sent: it may wait for nodes."""
        for started, work in list(self._works.items()):
            unsent = work.calls and not work.begun
            # check the last call first: calls are mostly cancelled in order, and this runs for each
            if unsent and all(call.future.cancelled() for call in reversed(work.calls)):
                started.cancel()

    async def _serve(self, site: Site, ledger: Ledger, closed: worlds.Future[None]) -> None:
        run, spec = self._run, self._run.spec
        lessons = recall(run)
        real = not self._world.is_virtual
        log = Log(run.log, None if real else lambda: f"{self._world.now():.3f}")
        job = JobContext(
            run.name, ledger, run.values, spec.seed, lessons.preparation, log, spec.commands
        )
        nodes = spec.nodes or site.cluster.size
        assignment = Assignment(site, job, nodes, spec.default_needs())
        share = site.cluster.kind.share(assignment.needs)
        self.at_once = nodes * max(1, int(1 / share + ROUNDING))
        self._sizes = BatchSizes(self.at_once) if real else None
        performer = strategy(spec.strategy, assignment, spec.options)
        self._candidates = Candidates(performer, ledger, Choices(self._records))
        lessons.teach(performer.forecast)
        with ledger.span("run", "driver", spec.strategy):
            try:
                await performer.begin()
                self.ready.set_result(site)
                await closed
            finally:
                await self._end_works()
                await performer.close()
                remember(run, job.preparation, performer.forecast)

    async def _end_works(self) -> None:
        """Cancel unfinished work; let the rest release its resources."""
        unfinished = [
            started
            for started, work in self._works.items()
            if not all(call.future.done() for call in work.calls)
        ]
        await self._world.cancel(unfinished)
        await self._world.settled(list(self._works))

    def _start(self, coroutine: Coroutine[Any, Any, None], calls: Sequence[SessionCall]) -> None:
        work = CallWork(dict.fromkeys(calls))
        self._work_of |= dict.fromkeys(calls, work)
        if self._closed is None or self._closed.done():
            coroutine.close()
            self._refuse(calls)
            return
        started = self._world.start(coroutine)
        self._works[started] = work
        started.add_done_callback(self._work_ended)

    def _work_ended(self, started: worlds.Future[None]) -> None:
        work = self._works.pop(started, None)
        if work is not None:
            self._refuse(list(work.calls))
        if not started.cancelled():
            started.exception()  # its calls carry the error; asyncio would report it again

    async def _classical(self, calls: list[SessionCall], least: int) -> None:
        """Divide calls into batches, after measuring their duration if it is unknown."""
        if self._sizes is None or least > 1:
            await self._phase(_divided(calls, least))
            return
        probes = self._sizes.probes(calls)
        if not probes:
            await self._phase(_divided(calls, self._sizes.size(calls)))
            return
        first_end: worlds.Future[None] = self._world.future()
        self._first_ends |= dict.fromkeys(calls[:probes], first_end)
        probing, calls[:] = calls[:probes], calls[probes:]
        first = self._world.start(self._phase(_divided(probing, 1)))
        await self._world.first_of([first_end, first])
        try:
            await self._phase(_divided(calls, self._sizes.size(calls)))
        finally:
            await self._world.settled([first])

    async def _phase(self, batches: list[list[SessionCall]]) -> None:
        """Let the strategy run batches; a phase keeps no call that has ended."""
        key = batches[0][0].key
        tasks = tuple(CallBatch.of(each, self._end, self._initializer) for each in batches)
        batches.clear()
        try:
            await self._perform(CallPhase(tasks), key)
        except Exception as error:  # calls that reached a node have their own errors
            left = [call for each in tasks for call in each.calls if not call.future.done()]
            if any(len(each.names) > 1 for each in tasks) and left:
                await self._phase([[call] for call in left])  # one cannot be sent, or kills nodes
            else:
                self._end([(call, None, error) for call in left], 0.0)

    async def _quantum(self, call: SessionCall, phase: CallPayload) -> None:
        phase.use()
        if phase.otherwise is not None and not call.future.start():
            return  # the task that may replace the payload does not know the call
        try:
            self._end([(call, await self._perform(phase, call.key), None)], 0.0)
        except Exception as error:
            self._end([(call, None, error)], 0.0)

    async def _perform(self, phase: Phase, key: str) -> Any:
        self._report("begun", key, phase)
        try:
            result = await self._candidates.perform(phase, key)
        except Exception:
            self._report("failed", key, phase)
            raise
        self._report("done", key, phase)
        return result

    def _report(self, state: Literal["begun", "done", "failed"], key: str, phase: Phase) -> None:
        self._tell(self._run.name, ReplayStep(state, key, phase), self._world.now())

    def _end(self, outcomes: list[Outcome], seconds: float) -> None:
        """Record the outcomes, then hand them to the script without keeping them."""
        if self._sizes is not None and seconds:
            self._sizes.learn(outcomes[0][0].name, seconds / len(outcomes))
        self._records.keep(outcomes)
        outcomes.reverse()
        while outcomes:
            self._resolve(*outcomes.pop())

    def _resolve(self, call: SessionCall, value: Any, error: BaseException | None) -> None:
        work = self._work_of.pop(call, None)
        if work is not None:
            work.calls.pop(call, None)
            work.begun = True
        first_end = self._first_ends.pop(call, None)
        if first_end is not None and not first_end.done():
            first_end.set_result(None)
        if isinstance(error, InitializerFailed):
            error = self.broken = BrokenExecutor(str(error))
        call.future.resolve(value, error)

    def _refuse(self, calls: Sequence[SessionCall]) -> None:
        for call in calls:
            why = f"the session {self._run.name} ended before call {call.key} did"
            self._resolve(call, None, QtideError(why))


def _divided(calls: list[SessionCall], size: int) -> list[list[SessionCall]]:
    """Move calls into batches and clear the list, so that ended calls and results are freed."""
    batches = [calls[start : start + size] for start in range(0, len(calls), size)]
    calls.clear()
    return batches


@dataclass(frozen=True, eq=False)
class CallPayload(Quantum):
    """The payload of a call."""

    call: SessionCall | None = None

    def starting(self) -> bool:
        """Return whether to run the payload; from now on, its call cannot be cancelled."""
        return self.call is None or self.call.future.start()


@dataclass(eq=False)
class CallWork:
    """The work on a burst of calls."""

    calls: dict[SessionCall, None]
    """The calls that have not ended."""
    begun: bool = False
    """Whether any of the calls has ended."""
