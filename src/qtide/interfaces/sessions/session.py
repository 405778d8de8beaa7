"""A session: a synchronous script whose calls run on nodes and on the QPU, under a strategy."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from qtide.core.errors import QtideError, UsageError
from qtide.core.world.world import World
from qtide.interfaces.progress import progress
from qtide.interfaces.python.run import Run
from qtide.interfaces.sessions.calls import SessionCall, SessionFuture, digest, function_name
from qtide.interfaces.sessions.session_qpu import SessionQpu
from qtide.interfaces.sessions.session_records import Records
from qtide.interfaces.sessions.session_worker import Opening, SessionWorker, engine_for
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

SETTLE = 0.003
"""Seconds for which further calls join those before, as one phase, unless the script waits."""
AGENT = "qtide.backends.clusters.agent"
"""The main module of a process that performs tasks."""


class Session(Executor):
    """An executor on the nodes of a cluster, with a QPU beside it; use it in a `with` block."""

    def __init__(self, run: RunFolder, world: World, opening: Opening, *, named: bool) -> None:
        self._run = run
        self._world = world
        self._opening = opening
        self._named = named
        self._engine = engine_for(world)
        self._numbers = count(1)
        self._lock = threading.RLock()
        self._joining: list[SessionCall] = []
        self._unfinished: set[Future[Any]] = set()
        self._seen: list[SessionCall] = []
        self._calls: dict[Future[Any], SessionCall] = {}
        self._state = "new"

    @property
    def name(self) -> str:
        """Its name: that of its folder in the folder of runs."""
        return self._run.name

    @property
    def run(self) -> Run[None]:
        """Its figures, its timeline and its report, as those of a run."""
        return Run(self._run)

    @property
    def nodes(self) -> int:
        """The most nodes that it may hold."""
        return self._run.spec.nodes or self._hold.ready.result().cluster.size

    @property
    def qpu(self) -> SessionQpu:
        """The QPU: to be used directly, as a Qiskit backend, or as a dimod sampler."""
        return SessionQpu(self)

    def __enter__(self) -> Session:
        if self._state != "new":
            raise UsageError(f"the session {self.name} was opened before: open a new one")
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._journal = Journal(self._run.journal, "session")
        self._records = Records(self._journal, self._run.values, named=self._named)
        self._run.unfinish()
        self._run.presence.arrive(self._run.spec.cluster.partition(":")[0])
        self._progress = progress(self._run.spec)
        tell = self._progress.__enter__()
        self._hold = SessionWorker(self._run, self._world, self._opening, self._records, tell)
        self._engine.start(self._hold.main())
        self._state = "open"
        try:
            self.attend(self._hold.ready)
            self._hold.ready.result()
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
            if error is None and self._state == "open":
                self._wait_for_all()
        except BaseException as interrupt:
            self._end(interrupt)
            raise
        self._end(error)

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function on a node; calls that follow at once are one phase with it."""
        if not callable(function):
            raise TypeError(f"submit() takes a function and its arguments, not {function!r}")
        with self._lock:
            call = self._call(function, args, kwargs)
            if not call.future.done():
                self._joining.append(call)
                if len(self._joining) == 1:
                    self._engine.soon(SETTLE, self.flush)
        return call.future

    def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[T]:
        """The results in order, as they come; all calls are one phase.

        Short calls travel together, as many as pays, or `chunksize` of them.
        """
        given = list(zip(*iterables, strict=False))
        with self._lock:
            self.flush()
            calls = [self._call(function, args, {}) for args in given]
            self._hand_over([each for each in calls if not each.future.done()], chunksize or 1)
        return _results([each.future for each in calls], timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End it before the end of its block; what was called is waited for, unless told not to."""
        if self._state == "open":
            if cancel_futures:
                for future in list(self._unfinished):
                    future.cancel()
            if wait:
                self._wait_for_all()
            self._end(None)

    def flush(self) -> None:
        """Begin what was called, without waiting for further calls to join it."""
        with self._lock:
            calls, self._joining = self._joining, []
            self._hand_over(calls, 1)

    def attend(self, future: Future[Any], timeout: float | None = None) -> None:
        """The script is about to wait for a future."""
        if self._state == "open":
            self._check_virtual()
            self.flush()
            self._engine.attend(future)

    def seen(self, future: SessionFuture[Any]) -> None:
        """The script has seen how a call failed; if it goes on all the same, that is kept."""
        call = self._calls.pop(future, None)
        if call is not None:
            self._seen.append(call)

    def quantum(self, phase: Quantum) -> Future[Any]:
        """Run a payload on the QPU."""
        with self._lock:
            self.flush()
            future: SessionFuture[Any] = SessionFuture(self)
            what = (phase.payload, phase.shots, phase.seed)
            call = self._register(future, f"quantum {phase.label}", what)
            if not future.done():
                self._engine.call(self._hold.begin_quantum, call, phase)
        return future

    def describe_qpu(self) -> dict[str, Any]:
        """The device's `name`, `kind` and `properties`."""
        self._check()
        answer: Future[dict[str, Any]] = Future()
        site = self._hold.ready.result()
        self._engine.call(self._hold.ask, site.qpu.describe, answer)
        self._engine.attend(answer)
        return answer.result()

    def _call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> SessionCall:
        future: SessionFuture[Any] = SessionFuture(self)
        call = self._register(future, f"classical {function_name(function)}", (args, kwargs))
        call.function, call.args, call.kwargs = function, args, kwargs
        return call

    def _register(self, future: SessionFuture[Any], asked: str, what: Any) -> SessionCall:
        """Give a call its place in the script; the journal may have its result."""
        self._check()
        if self._named:
            asked = f"{asked} {self._digest(asked, what)}"
            for each in self._seen:
                self._records.keep([(each, None, _error(each.future))], failed=True)
            self._seen.clear()
        call = SessionCall(str(next(self._numbers)), asked, future)
        if not self._records.answered(call):
            self._unfinished.add(future)
            if self._named:
                self._calls[future] = call
            future.add_done_callback(self._unfinished.discard)
        return call

    def _digest(self, asked: str, what: Any) -> str:
        try:
            return digest(what)
        except Exception as error:
            raise UsageError(
                f"an argument of «{asked}» cannot be pickled ({error}), so a session with a name "
                "cannot tell this call from others: give plain data, or the session no name"
            ) from None

    def _check(self) -> None:
        if self._state != "open":
            raise UsageError(f"the session {self.name} is {self._state}: use it in its with block")
        if os.getpid() != self._process:
            raise UsageError("a session belongs to the process that opened it: open one in each")
        if self._named and threading.get_ident() != self._thread:
            raise UsageError(
                f"the calls of the session {self.name} are kept in their order, so all have to "
                "come from the thread that opened it: leave out its name, or the other threads"
            )
        self._check_virtual()

    def _check_virtual(self) -> None:
        """Virtual time passes in one thread, while that thread waits."""
        if self._engine.one_thread and threading.get_ident() != self._thread:
            raise UsageError(
                f"time is virtual in the session {self.name}, so only the thread that opened it "
                "can use it: leave out the other threads, or choose a real cluster"
            )

    def _hand_over(self, calls: Sequence[SessionCall], least: int) -> None:
        if calls:
            self._engine.call(self._hold.begin, calls, least)

    def _wait_for_all(self) -> None:
        self.flush()
        for future in list(self._unfinished):
            self.attend(future)
            while not future.done():
                _quietly(future)

    def _end(self, error: BaseException | None) -> None:
        """Give everything back."""
        if self._state != "open":
            return
        self._state = "closed"
        try:
            self._engine.call(self._hold.close)
            self._engine.end(cancel=not self._hold.ready.done())
        finally:
            self._progress.__exit__(None, None, None)
            self._finish(error)
            self._journal.close()

    def _finish(self, error: BaseException | None) -> None:
        if error is None:
            self._run.finish({"value": None})
        elif isinstance(error, Exception):
            self._run.finish({"error": sentence(error)})

    def __reduce__(self) -> Any:
        raise UsageError("a session cannot be passed to a task: call its functions in the script")

    def __repr__(self) -> str:
        return f"<qtide session {self.name}: {self._state}>"


def session(
    *,
    strategy: str | None = None,
    cluster: str | None = None,
    qpu: str | None = None,
    name: str = "",
    nodes: int | None = None,
    vqpus: int | None = None,
    time_scale: float | None = None,
    seed: int | None = None,
    runs: str | Path | None = None,
    **options: Any,
) -> Session:
    """A session with the options of `qtide run`, for a `with` block of a synchronous script.

    With a name, its calls are kept in their order: the same script goes on where it was killed.
    """
    main = sys.modules.get("__main__")
    if getattr(getattr(main, "__spec__", None), "name", "") == AGENT:
        raise UsageError(
            "a task is on a node already: open the session in the script that calls it"
        )
    core = {"strategy": strategy, "cluster": cluster, "qpu": qpu, "nodes": nodes, "vqpus": vqpus}
    rest = {"time_scale": time_scale, "seed": seed, "runs": runs}
    given = RunOptions("run", core | rest | options)
    script = getattr(main, "__file__", None)
    place = str(Path(script).absolute()) if script else "<notebook>"
    spec = decided(given.spec(place, session=True), given.runs)
    check_site(spec)
    run = _folder(given.runs, name, with_precedent(spec, given.runs))
    world, durations = world_for(spec), recorded(run.spec)
    device_log = run.path / "device.log"
    return Session(
        run, world, lambda: opened(run.spec, world, device_log, durations), named=bool(name)
    )


def _folder(runs: Path, name: str, spec: Spec) -> RunFolder:
    """A new folder; that of an earlier session of the name, if there was one."""
    check_name(name)
    found = RunFolder(runs / name) if name else None
    if found is None or not (found.path / "run.json").is_file():
        return RunFolder.create(runs, name or f"session-{stamp()}", spec)
    if not found.spec.session:
        raise UsageError(f"{found.path} is a run of a program: give the session another name")
    spec.write(found.path / "run.json")
    return found


def _results(futures: list[Future[T]], timeout: float | None) -> Iterator[T]:
    """One after the other; those that are not wanted any more are cancelled."""
    from time import monotonic

    limit = None if timeout is None else monotonic() + timeout
    try:
        for future in futures:
            yield future.result(None if limit is None else limit - monotonic())
    finally:
        for future in futures:
            future.cancel()


def _error(future: Future[Any]) -> Exception | None:
    found = Future.exception(future)
    return found if isinstance(found, Exception) else QtideError(str(found))


def _quietly(future: Future[Any]) -> None:
    """Wait for a future, whatever becomes of it."""
    from concurrent.futures import wait

    wait([future], 1.0)
