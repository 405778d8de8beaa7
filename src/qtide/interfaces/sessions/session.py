"""Sessions: a synchronous script's calls run on nodes and on the QPU under a strategy."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from itertools import count
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack

from qtide.core.errors import UsageError
from qtide.core.resources import Needs
from qtide.core.world.world import World
from qtide.interfaces.progress import progress
from qtide.interfaces.python.keywords import PluginKeywords
from qtide.interfaces.python.run import Run
from qtide.interfaces.sessions.session_call import (
    SessionCall,
    SessionFuture,
    SessionPart,
    error_of,
    fingerprint,
    function_name,
    results,
)
from qtide.interfaces.sessions.session_loop import loop_for
from qtide.interfaces.sessions.session_qpu import SessionQpu
from qtide.interfaces.sessions.session_records import SessionRecords
from qtide.interfaces.sessions.session_worker import OpenSite, SessionWorker
from qtide.programs.calls import Initializer
from qtide.programs.command import (
    CommandAttempt,
    CommandKeywords,
    CommandResult,
    CommandTask,
    Word,
    command,
)
from qtide.programs.journal import Journal
from qtide.programs.phase import Quantum
from qtide.runs.driver import sentence
from qtide.runs.earlier import recorded, with_precedent
from qtide.runs.folder import RunFolder, check_name, stamp
from qtide.runs.open_site import check_site, opened, world_for
from qtide.runs.run_options import RunOptions
from qtide.runs.spec import Spec
from qtide.runs.start import decided

P = ParamSpec("P")
T = TypeVar("T")

JOINING = 0.003
"""Seconds during which further calls join a phase, unless the script waits earlier."""
GLANCE = 1.0
"""Seconds between two checks of a call at the end of a session."""
AGENT = "qtide.backends.clusters.agent"
"""Main module of the processes that run tasks."""


def session(
    *,
    strategy: str | None = None,
    cluster: str | None = None,
    qpu: str | None = None,
    name: str | None = None,
    nodes: int | None = None,
    vqpus: int | None = None,
    time_scale: float | None = None,
    seed: int | None = None,
    needs: str | None = None,
    runs: str | Path | None = None,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
    **options: Unpack[PluginKeywords],
) -> Session:
    """Return a session for the `with` block of a synchronous script; options are as in `qtide run`.

    A named session records its calls in order, so that the same script resumes where it was killed.
    Each process that makes calls runs `initializer(*initargs)` before its first call.
    """
    main = sys.modules.get("__main__")
    if getattr(getattr(main, "__spec__", None), "name", "") == AGENT:
        raise UsageError(
            "a task is on a node already: open the session in the script that calls it"
        )
    if initializer is not None and not callable(initializer):
        raise TypeError(f"initializer= takes a function, not {initializer!r}")
    core = {"strategy": strategy, "cluster": cluster, "qpu": qpu, "nodes": nodes, "vqpus": vqpus}
    rest = {"time_scale": time_scale, "seed": seed, "needs": needs, "runs": runs}
    given = RunOptions("run", core | rest | {**options}, ("name", "initializer", "initargs"))
    script = getattr(main, "__file__", None)
    program = str(Path(script).absolute()) if script else "<notebook>"
    spec = decided(given.spec(program, session=True), given.runs)
    check_site(spec)
    run = _folder(given.runs, name or "", with_precedent(spec, given.runs))
    world, durations = world_for(spec), recorded(run.spec)
    device_log = run.path / "device.log"
    return Session(
        run,
        world,
        lambda: opened(run.spec, world, device_log, durations),
        named=bool(name),
        initializer=Initializer(token_hex(8), initializer, initargs) if initializer else None,
    )


def _folder(runs: Path, name: str, spec: Spec) -> RunFolder:
    """Return the folder of the earlier session with that name, or create one."""
    check_name(name)
    found = RunFolder(runs / name) if name else None
    if found is None or not (found.path / "run.json").is_file():
        return RunFolder.create(runs, name or f"session-{stamp()}", spec)
    if not found.spec.session:
        raise UsageError(f"{found.path} is a run of a program: give the session another name")
    found.trusted()
    spec.write(found.path / "run.json")
    return found


class SessionRun(Run[None]):
    """A session as a run; called, it runs a command in the session."""

    def __init__(self, folder: RunFolder, session: Session) -> None:
        super().__init__(folder)
        self._session = session

    def __call__(
        self, program: str | Path, /, *words: Word, **terms: Unpack[CommandKeywords]
    ) -> CommandResult:
        """Run a program on a node and wait for it; the arguments are those of `command()`."""
        return self.start(program, *words, **terms).result()

    def start(
        self, program: str | Path, /, *words: Word, **terms: Unpack[CommandKeywords]
    ) -> Future[CommandResult]:
        """Start a program on a node, to run beside others."""
        return self._session.start_command(command(program, *words, **terms))


class SessionClosed(UsageError, RuntimeError):  # noqa: N818 - the name says what is wrong
    """A session was used before or after its `with` block."""


class Session(Executor):
    """An executor on the nodes of a cluster, with a QPU; use it in a `with` block."""

    def __init__(
        self,
        run: RunFolder,
        world: World,
        open_site: OpenSite,
        *,
        named: bool,
        initializer: Initializer | None = None,
    ) -> None:
        self._run = run
        self._world = world
        self._open_site = open_site
        self._named = named
        self._initializer = initializer
        self._loop = loop_for(world)
        self._numbers = count(1)
        self._lock = threading.RLock()
        self._joining: list[SessionCall] = []
        """Calls waiting for others to join their phase."""
        self._unfinished: set[Future[Any]] = set()
        self._failures_seen: list[SessionCall] = []
        self._calls: dict[Future[Any], SessionCall] = {}
        """Calls of a named session that have not succeeded."""
        self._closer: threading.Thread | None = None
        self._state = "new"

    @property
    def name(self) -> str:
        """Name of the session and of its folder among the runs."""
        return self._run.name

    @property
    def run(self) -> SessionRun:
        """The session as a run: its figures, its timeline and its report.

        Called with a program and its words, it runs that as a command.
        """
        return SessionRun(self._run, self)

    @property
    def nodes(self) -> int:
        """Maximum number of nodes the session may hold."""
        return self._run.spec.nodes or self._worker.ready.result().cluster.size

    @property
    def at_once(self) -> int:
        """Maximum number of calls that run at the same time, with the session's own needs."""
        self._worker.ready.result()
        return self._worker.at_once

    @property
    def qpu(self) -> SessionQpu:
        """The QPU, for direct use, as a Qiskit backend or as a dimod sampler."""
        return SessionQpu(self)

    def __enter__(self) -> Session:
        if self._state != "new":
            raise SessionClosed(f"the session {self.name} was opened before: open a new one")
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._journal = Journal(self._run.journal, "session")
        self._records = SessionRecords(self._journal, self._run.values, named=self._named)
        self._run.unfinish()
        self._run.presence.arrive(self._run.spec.cluster.partition(":")[0])
        self._progress = progress(self._run.spec, script=self.name)
        self._worker = SessionWorker(
            self._run,
            self._world,
            self._open_site,
            self._records,
            self._progress.__enter__(),
            self._initializer,
        )
        self._loop.start(self._worker.main())
        self._state = "open"
        try:
            self.before_wait(self._worker.ready)
            self._worker.ready.result()
        except BaseException as error:
            self._end(error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.shutdown()
        except BaseException as interrupt:
            self._end(interrupt)
            raise
        self._end(error)

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function on a node; calls submitted right after it join the same phase."""
        return self.submit_needing(None, function, args, kwargs)

    def needs(
        self,
        cores: int | None = None,
        gpus: int = 0,
        memory: str | int | None = None,
        kind: str | None = None,
    ) -> SessionPart:
        """Return an executor whose calls have these needs: `s.needs(cores=4).submit(f, x)`."""
        return SessionPart(self, Needs.of(cores, gpus, memory, kind))

    def submit_needing(
        self, needs: Needs | None, function: Callable[..., T], args: Any, kwargs: Any
    ) -> Future[T]:
        """Call a function on a node with the given needs; None for the session's own."""
        if not callable(function):
            raise TypeError(f"submit() takes a function and its arguments, not {function!r}")
        with self._lock:
            call = self._call(function, args, kwargs)
            call.needs = needs
            self._join(call)
        return call.future

    def _join(self, call: SessionCall) -> None:
        """Let a call wait for others to join its phase, unless the journal has its result."""
        if not call.future.done():
            self._joining.append(call)
            if len(self._joining) == 1:
                self._loop.call_later(JOINING, self.flush)

    def start_command(self, task: CommandTask) -> Future[CommandResult]:
        """Run a command on a node; commands started right after it join the same phase."""
        if task.nodes > 1:
            raise UsageError("a session runs commands on one node; for several, write a program")
        task.use()
        run = self._run
        place = CommandAttempt(0, "", task.name, run.path.absolute(), run.spec.commands)
        with self._lock:
            call = self._register(f"classical {task.name}", task.function)
            call.function, call.kwargs = task.function, {"attempt": place}
            call.needs = task.resources
            self._join(call)
        return call.future

    def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[T]:
        """Yield the results in order as they become available; all calls form one phase.

        Calls are sent in batches of `chunksize`; by default, short calls share a batch.
        """
        return self.map_needing(None, function, iterables, timeout, chunksize)

    def map_needing(
        self,
        needs: Needs | None,
        function: Callable[..., T],
        iterables: Sequence[Iterable[Any]],
        timeout: float | None,
        chunksize: int | None,
    ) -> Iterator[T]:
        """Call a function for each of the arguments, with the given needs."""
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        given = list(zip(*iterables, strict=False))
        with self._lock:
            self.flush()
            calls = [self._call(function, args, {}) for args in given]
            for each in calls:
                each.needs = needs
            self._begin([each for each in calls if not each.future.done()], chunksize or 1)
        return results([each.future for each in calls], timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the session before the end of its block.

        Submitted calls are made first, except those that `cancel_futures` cancels. With
        `wait=False`, this happens in another thread after the return; in virtual time, at the end
        of the block.
        """
        with self._lock:
            if self._state not in ("open", "closing"):
                return
            self.flush()
            self._state = "closing"
        if cancel_futures:
            for future in list(self._unfinished):
                future.cancel()
        if wait and self._closer is not None:
            self._closer.join()
        elif wait:
            self._finish_calls()
        elif not self._loop.one_thread and self._closer is None:
            self._closer = threading.Thread(target=self._finish_calls, name="qtide shutdown")
            self._closer.start()

    def terminate_workers(self) -> None:
        """Release all resources at once; unfinished calls fail."""
        self._end(None)

    def flush(self) -> None:
        """Start the submitted calls without waiting for others to join them."""
        with self._lock:
            calls, self._joining = self._joining, []
            self._begin(calls, 1)

    def before_wait(self, future: Future[Any]) -> None:
        """Start the submitted calls as the script is about to wait; virtual time passes here."""
        if self._state in ("open", "closing"):
            self._check_thread()
            self.flush()
            self._loop.run_until(future)

    def failure_seen(self, future: SessionFuture[Any]) -> None:
        """Note that the script saw a failure; it is recorded if the script makes another call."""
        call = self._calls.pop(future, None)
        if call is not None:
            self._failures_seen.append(call)

    def future_cancelled(self) -> None:
        """Let the worker drop calls that no longer need a node."""
        self._loop.call(self._worker.drop_cancelled)

    def quantum(self, phase: Quantum) -> Future[Any]:
        """Run a payload on the QPU."""
        with self._lock:
            self.flush()
            what = (phase.payload, phase.shots, phase.seed)
            call = self._register(f"quantum {phase.label}", what)
            if not call.future.done():
                self._loop.call(self._worker.begin_quantum, call, phase)
        return call.future

    def describe_qpu(self) -> dict[str, Any]:
        """Return the device's `name`, `kind` and `properties`."""
        self._check()
        answer: Future[dict[str, Any]] = Future()
        site = self._worker.ready.result()
        self._loop.call(self._worker.ask, site.qpu.describe, answer)
        self._loop.run_until(answer)
        return answer.result()

    def _call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> SessionCall:
        call = self._register(f"classical {function_name(function)}", (args, kwargs))
        call.function, call.args, call.kwargs = function, args, kwargs
        return call

    def _register(self, asked: str, arguments: Any) -> SessionCall:
        """Number a call by its position in the script; the journal may have its result."""
        self._check()
        if self._named:
            asked = f"{asked} {self._fingerprint(asked, arguments)}"
            for each in self._failures_seen:
                self._records.keep([(each, None, error_of(each.future))], failed=True)
            self._failures_seen.clear()
        future: SessionFuture[Any] = SessionFuture(self)
        call = SessionCall(str(next(self._numbers)), asked, future)
        if not self._records.answered(call):
            self._unfinished.add(future)
            if self._named:
                self._calls[future] = call
            future.add_done_callback(self._call_ended)
        return call

    def _call_ended(self, future: Future[Any]) -> None:
        self._unfinished.discard(future)
        if future.cancelled() or Future.exception(future) is None:
            self._calls.pop(future, None)

    def _fingerprint(self, asked: str, arguments: Any) -> str:
        try:
            return fingerprint(arguments)
        except Exception as error:
            raise UsageError(
                f"an argument of «{asked}» cannot be pickled ({error}), so a session with a name "
                "cannot tell this call from others: give plain data, or the session no name"
            ) from None

    def _check(self) -> None:
        if self._state != "open":
            state = "closed" if self._state == "closing" else self._state
            raise SessionClosed(f"the session {self.name} is {state}: use it in its with block")
        if os.getpid() != self._process:
            raise UsageError("a session belongs to the process that opened it: open one in each")
        if self._broken is not None:
            raise BrokenExecutor(str(self._broken))
        if self._named and threading.get_ident() != self._thread:
            raise UsageError(
                f"the calls of the session {self.name} are kept in their order, so all have to "
                "come from the thread that opened it: leave out its name, or the other threads"
            )
        self._check_thread()

    @property
    def _broken(self) -> BrokenExecutor | None:
        return self._worker.broken

    def _check_thread(self) -> None:
        """Refuse other threads in virtual time: it passes only while the opening thread waits."""
        if self._loop.one_thread and threading.get_ident() != self._thread:
            raise UsageError(
                f"time is virtual in the session {self.name}, so only the thread that opened it "
                "can use it: leave out the other threads, or choose a real cluster"
            )

    def _begin(self, calls: list[SessionCall], least: int) -> None:
        by_needs: dict[Needs | None, list[SessionCall]] = {}
        for call in calls:
            by_needs.setdefault(call.needs, []).append(call)
        for each in by_needs.values():
            self._loop.call(self._worker.begin, each, least)

    def _finish_calls(self) -> None:
        """Wait for all calls, then end the session."""
        for future in list(self._unfinished):
            self.before_wait(future)
            while not future.done():
                wait([future], GLANCE)
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        """Release all resources and record how the session ended."""
        with self._lock:
            if self._state not in ("open", "closing"):
                return
            self._state = "closed"
        try:
            self._loop.call(self._worker.close)
            self._loop.end(cancel=not self._worker.ready.done())
        finally:
            self._progress.__exit__(None, None, None)
            if error is None:
                self._run.finish({"value": None})
            elif isinstance(error, Exception):
                self._run.finish({"error": sentence(error)})
            if not self._named:  # its values are never read again
                shutil.rmtree(self._run.values.folder, ignore_errors=True)
            self._journal.close()

    def __reduce__(self) -> Any:
        raise UsageError("a session cannot be passed to a task: call its functions in the script")

    def __repr__(self) -> str:
        return f"<qtide session {self.name}: {self._state}>"
