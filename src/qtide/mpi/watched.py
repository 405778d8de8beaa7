"""MPI calls, requests, messages, files and windows that do not hang when a process is lost.

MPICH waits for a lost process forever. Here, the caller tests an operation until it completes and
watches the other processes meanwhile.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from qtide.core.errors import QtideError, UsageError
from qtide.mpi.control import NodesLost
from qtide.mpi.library import MPI, library

T = TypeVar("T")

Watch = Callable[[], None]
"""Raises if the awaited operation can never complete."""

FIRST = range(100)
"""How often to test an operation before watching: short operations complete by then."""
SPIN = 0.002
"""Seconds to test without sleeping after that."""
NAP_LEAST, NAP_MOST = 50e-6, 1e-3
"""Shortest and longest sleep, in seconds, after `SPIN`: a long wait leaves the core to others."""
NAP_SHARE = 0.05
"""A sleep's share of the time waited so far, so that it adds no more than that to the wait."""
MOVING = 20e-6
"""A test that uses more CPU seconds than this has moved data: do not sleep after it."""
TURN = 64
"""How many tests that move data to run before letting other processes on this machine run."""
NAP_TURN = 20e-6
"""Seconds to sleep then: a process that sleeps regains its core sooner than one that yields."""
GIVEN_UP: list[object] = []
"""Tests whose waits were given up, and requests: MPI may still use their buffers, so these are
kept."""


NOTICE = 1.0
"""Seconds within which a loss is known that MPI notices first."""
CANCEL_LIMIT = 1.0
"""Seconds to wait for the rest of a message of which a part has come."""


def wait(test: Callable[[], T], watch: Watch, done: Callable[[T], Any] = bool) -> T:
    """Call an MPI test until its result is `done`, watching meanwhile; return the result.

    An operation that completes after a loss may have what a rank that gave up has changed since it
    sent it, so that raises, too.
    """
    try:
        found = _tested(test, watch, done)
    except BaseException as error:
        GIVEN_UP.append((test, _requests()))
        if isinstance(error, MPI.Exception):
            _notice(watch)
        raise
    watch()
    return found


def _requests() -> list[object]:
    """Return all requests that the program has: it may forget some of them after a loss."""
    return [each for each in gc.get_objects() if isinstance(each, _REQUEST)]


def _notice(watch: Watch) -> None:
    """Raise the loss for which MPI has raised an error, if there is one."""
    last = time.monotonic() + NOTICE
    while time.monotonic() < last:
        watch()
        time.sleep(NAP_MOST)


def _tested(test: Callable[[], T], watch: Watch, done: Callable[[T], Any]) -> T:
    for _ in FIRST:  # MPICH makes progress only while it is tested
        if done(found := test()):
            return found
    since, moves = time.perf_counter(), 0
    while True:
        watch()
        used = time.thread_time()  # CPU time does not count while others have the core
        if done(found := test()):
            return found
        moved = time.thread_time() - used > MOVING
        now = time.perf_counter()
        if moved:
            since, moves = now, moves + 1
            if moves % TURN == 0:
                time.sleep(NAP_TURN)
        elif now - since < SPIN:
            os.sched_yield()
        else:
            time.sleep(min(max(NAP_LEAST, NAP_SHARE * (now - since)), NAP_MOST))


def complete(request: Any, watch: Watch, status: Any = None) -> None:
    """Wait for a request."""
    wait(request.Test if status is None else partial(request.Test, status), watch)


def receive(request: Any, watch: Watch, status: Any = None) -> None:
    """Wait for a receive; if it is given up, MPI leaves the program's memory alone."""
    try:
        complete(request, watch, status)
    except NodesLost:
        _take_back([request])
        raise


def _take_back(receives: Sequence[Any]) -> None:
    """Cancel receives; if a part of a message has come, wait for the rest: its sender keeps it."""
    pending = [each for each in receives if each != MPI.REQUEST_NULL]
    last = time.monotonic() + CANCEL_LIMIT
    with suppress(MPI.Exception):
        for each in pending:
            _REQUEST.Cancel(each)
        while not _REQUEST.Testall(pending) and time.monotonic() < last:
            time.sleep(NAP_LEAST)


POLL = 0.002
"""Seconds between two calls of `watch` during a blocking call."""
CALL_LIMIT = 60.0
"""Seconds within which a blocking call must return if all participants are alive."""
GRACE = 4.0
"""Seconds to wait for an abandoned blocking call to return; its own limit is shorter."""


HANGS = (
    "MPI hangs, as nodes were lost while processes were being connected; start the program again: "
    "it goes on from what was saved last"
)


class MpiStuck(QtideError):  # noqa: N818 - what happened
    """MPI hangs: no other MPI call would return either."""


def call(function: Callable[[], T], watch: Watch) -> T:
    """Run a call that MPI offers only in blocking form in a thread, and watch meanwhile.

    If the watch raises, wait `GRACE` seconds for the call, which has a shorter limit of its own. If
    it still hangs, abandon its thread: other MPI calls still work, unless MPICH was connecting
    processes.
    """
    made = _Call(function)
    last = time.monotonic() + CALL_LIMIT
    try:
        while not made.ended.wait(POLL):
            watch()
            _check_limit(last)
    except BaseException:
        if not made.ended.wait(GRACE):
            library().abandoned = True
            if not _Call(library().progress).ended.wait(GRACE):
                library().stuck = True
                raise MpiStuck(HANGS) from None
            if not (library().closed or _Call(library().create).ended.wait(GRACE)):
                library().closed = True
        raise
    if made.error is not None:
        raise made.error
    return made.result


def _check_limit(last: float) -> None:
    if time.monotonic() > last:
        raise NodesLost(f"MPI has not joined the processes of the job in {CALL_LIMIT:g} s")


class _Call(Generic[T]):
    """A call in its own thread; importing concurrent.futures would slow newcomers down."""

    result: T

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.error: BaseException | None = None
        self.ended = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="mpi").start()

    def _run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()


def no_watch() -> None:
    """Watch nothing: requests of mpi4py's own communicators may hang, as they do in mpi4py."""


def guarded(kind: Any, made: Any, watch: Watch) -> Any:
    """Wrap an mpi4py object in its guarded class; None stays None."""
    if made is None:
        return None
    watched = kind(made)
    watched.watch = watch
    return watched


class _CallKind(type):
    """Makes objects created by mpi4py count as instances of the guarded class, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__bases__[-1])


class _WatchedRequest:
    """A request's blocking methods, implemented as loops of tests."""

    watch: Watch = staticmethod(no_watch)
    sends = False
    """Whether the request belongs to a send."""
    receives = False
    """Whether it belongs to a receive into a buffer."""

    def Cancel(self) -> None:  # noqa: N802 - MPI's own name
        """Cancel a receive; refuse a send: cancelling one between joined worlds crashes MPICH."""
        if self.sends:
            raise UsageError("a send on a job's communicator cannot be cancelled; receive it")
        super().Cancel()  # type: ignore[misc]

    cancel = Cancel

    def Wait(self, status: Any = None) -> bool:  # noqa: N802 - MPI's own name
        """Wait for the operation."""
        _wait_for([self], partial(_REQUEST.Test, self, status))
        return True

    def wait(self, status: Any = None) -> Any:
        """Wait for the operation; return the received object."""
        return _wait_for([self], partial(_REQUEST.test, self, status), _first)[1]

    @classmethod
    def Waitall(cls, requests: Sequence[Any], statuses: Any = None) -> bool:  # noqa: N802
        """Wait for all operations."""
        return bool(_wait_for(requests, partial(_REQUEST.Testall, requests, statuses)))

    @classmethod
    def waitall(cls, requests: Sequence[Any], statuses: Any = None) -> list[Any]:
        """Wait for all operations; return the received objects."""
        found = _wait_for(requests, partial(_REQUEST.testall, requests, statuses), _first)
        return list(found[1] or ())

    @classmethod
    def Waitany(cls, requests: Sequence[Any], status: Any = None) -> int:  # noqa: N802
        """Wait for one of the operations; return its index."""
        found = _wait_for(requests, partial(_REQUEST.Testany, requests, status), lambda one: one[1])
        return int(found[0])

    @classmethod
    def waitany(cls, requests: Sequence[Any], status: Any = None) -> tuple[int, Any]:
        """Wait for one of the operations; return its index and the received object."""
        test = partial(_REQUEST.testany, requests, status)
        place, _, received = _wait_for(requests, test, lambda found: found[1])
        return place, received

    @classmethod
    def Waitsome(cls, requests: Sequence[Any], statuses: Any = None) -> Any:  # noqa: N802
        """Wait for at least one of the operations; return the indices of the completed ones."""
        test = partial(_REQUEST.Testsome, requests, statuses)
        return _wait_for(requests, test, lambda found: found is None or bool(found))

    @classmethod
    def waitsome(cls, requests: Sequence[Any], statuses: Any = None) -> Any:
        """Wait for at least one operation; return the completed indices and received objects."""
        test = partial(_REQUEST.testsome, requests, statuses)
        return _wait_for(requests, test, lambda found: found[0] is None or bool(found[0]))


def _test_of_one(name: str) -> Any:
    def operation(self: Any, status: Any = None) -> Any:
        found = getattr(_REQUEST, name)(self, status)
        self.watch()
        return found

    return operation


def _test_of_many(name: str) -> Any:
    def operation(_: Any, requests: Sequence[Any], statuses: Any = None) -> Any:
        found = getattr(_REQUEST, name)(requests, statuses)
        _watch_all(requests)()
        return found

    return classmethod(operation)


for _name in ("Test", "test"):  # programs that wait by tests would wait for ever
    setattr(_WatchedRequest, _name, _test_of_one(_name))
for _name in ("Testall", "testall", "Testany", "testany", "Testsome", "testsome"):
    setattr(_WatchedRequest, _name, _test_of_many(_name))


def _wait_for(requests: Sequence[Any], test: Callable[[], T], done: Callable[[T], Any] = bool) -> T:
    try:
        return wait(test, _watch_all(requests), done)
    except NodesLost:
        _take_back([each for each in requests if getattr(each, "receives", False)])
        raise


def _first(found: tuple[Any, ...]) -> Any:
    return found[0]


def _watch_all(requests: Sequence[Any]) -> Watch:
    watches = {getattr(each, "watch", no_watch) for each in requests}
    if len(watches) == 1:
        return watches.pop()

    def watch() -> None:
        for each in watches:
            each()

    return watch


_REQUEST: Any = MPI.Request


class Request(_WatchedRequest, MPI.Request, metaclass=_CallKind):  # type: ignore[misc]
    """A request whose waits end when a process is gone."""


class Prequest(_WatchedRequest, MPI.Prequest, metaclass=_CallKind):  # type: ignore[misc]
    """A persistent request whose waits end when a process is gone."""


class Message(MPI.Message, metaclass=_CallKind):
    """A matched message; receiving it fails, instead of hanging, when a process is gone."""

    watch: Watch = staticmethod(no_watch)

    def Recv(self, buf: Any, status: Any = None) -> None:  # noqa: N802 - MPI's own name
        """Receive it into a buffer."""
        self.Irecv(buf).Wait(status)

    def recv(self, status: Any = None) -> Any:
        """Receive it as an object."""
        return self.irecv().wait(status)

    def Irecv(self, buf: Any) -> Any:  # noqa: N802 - MPI's own name
        """Start receiving it into a buffer."""
        return guarded(Request, super().Irecv(buf), self.watch)

    def irecv(self) -> Any:
        """Start receiving it as an object."""
        return guarded(Request, super().irecv(), self.watch)

    @classmethod
    def Probe(cls, comm: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Wait for a message on a communicator and match it."""
        return comm.Mprobe(*args, **kwargs)

    @classmethod
    def probe(cls, comm: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait for an object on a communicator and match it."""
        return comm.mprobe(*args, **kwargs)

    @classmethod
    def Iprobe(cls, comm: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Match a message on a communicator, if there is one."""
        return comm.Improbe(*args, **kwargs)

    @classmethod
    def iprobe(cls, comm: Any, *args: Any, **kwargs: Any) -> Any:
        """Match an object on a communicator, if there is one."""
        return comm.improbe(*args, **kwargs)


_FILE, _WIN = MPI.File, MPI.Win


class WatchedFile(MPI.File, metaclass=_CallKind):
    """A file whose collective calls end when a process is gone."""

    watch: Watch = staticmethod(no_watch)
    barrier: Callable[[], None]


class Win(MPI.Win, metaclass=_CallKind):
    """A window whose synchronising calls end when a process is gone."""

    watch: Watch = staticmethod(no_watch)
    barrier: Callable[[], None]


def _created(create: Any) -> Any:
    """Guard what a class method creates on a communicator, which may be any of its arguments."""

    def operation(cls: Any, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        comm = next((each for each in given if isinstance(each, MPI.Comm)), MPI.COMM_SELF)
        watch = getattr(comm, "watch", no_watch)
        if watch is no_watch:
            return create(*args, **kwargs)
        comm.Barrier()
        made = guarded(cls, call(lambda: create(*args, **kwargs), watch), watch)
        made.barrier = comm.Barrier
        return made

    return classmethod(operation)


def _in_thread(function: Any, *, collective: bool = True) -> Any:
    def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.watch is no_watch:
            return function(self, *args, **kwargs)
        if (
            collective
        ):  # who is already gone is noticed here: MPI-IO does nothing after a stuck call
            self.barrier()
        return call(lambda: function(self, *args, **kwargs), self.watch)

    return operation


def _request(function: Any) -> Any:
    def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        return guarded(Request, function(self, *args, **kwargs), self.watch)

    return operation


FILE_CALLS = (
    "Close",
    "Preallocate",
    "Set_size",
    "Set_view",
    "Sync",
    "Seek_shared",
    "Set_atomicity",
)
"""Collective calls on files; so are all whose names have `_all` or `_ordered`."""
WIN_CALLS = (
    *(
        "Start",
        "Complete",
        "Wait",
        "Lock",
        "Lock_all",
        "Unlock",
        "Unlock_all",
        "Flush",
        "Flush_all",
    ),
    *("Flush_local", "Flush_local_all", "Get", "Put", "Accumulate", "Get_accumulate"),
    *("Fetch_and_op", "Compare_and_swap"),
)
"""Calls on windows that may wait for another process; `Fence` and `Free` wait for all."""
WatchedFile.Open = _created(_FILE.Open)  # type: ignore[method-assign]
for _name in ("Create", "Allocate", "Allocate_shared", "Create_dynamic"):
    setattr(Win, _name, _created(getattr(_WIN, _name)))
for _name in dir(_FILE):
    if _name.startswith("I") and _name.endswith("_all"):
        setattr(WatchedFile, _name, _request(getattr(_FILE, _name)))
    elif _name in FILE_CALLS or "_all" in _name or "_ordered" in _name:
        setattr(WatchedFile, _name, _in_thread(getattr(_FILE, _name)))
for _name in (*WIN_CALLS, "Fence", "Free"):
    _all = _name in ("Fence", "Free")
    setattr(Win, _name, _in_thread(getattr(_WIN, _name), collective=_all))

# replaced in mpi4py, because programs call class methods such as MPI.Request.Waitall(requests)
MPI.Request, MPI.Prequest, MPI.Message = Request, Prequest, Message  # type: ignore[misc]
MPI.File, MPI.Win = WatchedFile, Win  # type: ignore[misc]
