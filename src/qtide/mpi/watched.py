"""Waiting for MPI with an eye on the processes: calls, requests and messages that do not hang.

MPICH waits for a lost process for ever. Here an operation is tested until it ends, and whoever
waits watches the other processes meanwhile.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from qtide.core.errors import QtideError, UsageError
from qtide.mpi.control import NodesLost
from qtide.mpi.library import MPI, library

T = TypeVar("T")

Watch = Callable[[], None]
"""Raises if what is waited for will never come."""

FIRST = 100
"""How often an operation is tested before anything else is done: short ones have ended by then."""
SPIN = 0.002
"""Seconds in which it is then tested without a pause,"""
NAP_FIRST, NAP_MOST = 50e-6, 1e-3
"""and the pauses from then on, so that a rank that waits for long leaves its core to others."""
MOVING = 20e-6
"""A test that computes for longer than this has moved data: then there is no pause."""
TURN = 64
"""How many tests move data before other processes of this machine have their turn."""
NAP_TURN = 20e-6
"""Seconds of such a turn: a process that sleeps has its core back sooner than one that yields."""


def wait(test: Callable[[], T], watch: Watch, done: Callable[[T], Any] = bool) -> T:
    """Call a test of MPI until it says that the operation is done, and watch meanwhile."""
    for _ in range(FIRST):  # MPICH only makes progress while it is tested
        if done(found := test()):
            return found
    since, nap, moves = time.perf_counter(), NAP_FIRST, 0
    while True:
        watch()
        used = time.thread_time()  # a process that others interrupt uses none meanwhile
        if done(found := test()):
            return found
        moved = time.thread_time() - used > MOVING
        now = time.perf_counter()
        if moved:
            since, nap, moves = now, NAP_FIRST, moves + 1
            if moves % TURN == 0:
                time.sleep(NAP_TURN)
        elif now - since < SPIN:
            os.sched_yield()
        else:
            time.sleep(nap)
            nap = min(2 * nap, NAP_MOST)


POLL = 0.002
"""Seconds between two looks at whether a blocking call is still worth waiting for."""
CALL_LIMIT = 60.0
"""Seconds within which a blocking call has to end if all who take part are there."""
GRACE = 4.0
"""Seconds within which a blocking call has to end that was given up; its own limit is shorter."""


class MpiStuck(QtideError):  # noqa: N818 - what happened
    """MPI hangs: no other call would return either."""


def call(function: Callable[[], T], watch: Watch) -> T:
    """Make a call that MPI only has in a blocking form, in a thread, and watch meanwhile.

    A call that was given up is waited for, as it has a limit of its own. If it hangs nevertheless,
    its thread is abandoned: other calls pass by it, unless MPICH is just connecting processes.
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
                raise MpiStuck(
                    "MPI hangs, as a node was lost while processes were being connected; start the "
                    "program again: it goes on from what was saved last"
                ) from None
        raise
    if made.error is not None:
        raise made.error
    return made.result


def _check_limit(last: float) -> None:
    if time.monotonic() > last:
        raise NodesLost(f"MPI has not joined the processes of the job in {CALL_LIMIT:g} s")


class _Call(Generic[T]):
    """A call in a thread of its own; concurrent.futures would take newcomers longer to import."""

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
    """Watch nothing: requests of mpi4py's own communicators can hang, as they always did."""


def guarded(kind: Any, made: Any, watch: Watch) -> Any:
    """Give an object of mpi4py its guarded class."""
    if made is None:
        return None
    watched = kind(made)
    watched.watch = watch
    return watched


class _CallKind(type):
    """Lets objects that mpi4py made count as instances of the guarded class, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__bases__[-1])


class _WatchedRequest:
    """What blocks in a request, as tests in a loop."""

    watch: Watch = staticmethod(no_watch)
    sends = False
    """Whether it is the request of a send."""
    Test: Any
    test: Any

    def Cancel(self) -> None:  # noqa: N802 - MPI's own name
        """Cancel a receive. MPICH crashes if a send between joined processes is cancelled."""
        if self.sends:
            raise UsageError("a send on a job's communicator cannot be cancelled; receive it")
        super().Cancel()  # type: ignore[misc]

    cancel = Cancel

    def Wait(self, status: Any = None) -> bool:  # noqa: N802 - MPI's own name
        """Wait for the operation."""
        return bool(wait(lambda: self.Test(status), self.watch))

    def wait(self, status: Any = None) -> Any:
        """Wait for the operation; returns the object that it received."""
        return wait(lambda: self.test(status), self.watch, _first)[1]

    @classmethod
    def Waitall(cls, requests: Sequence[Any], statuses: Any = None) -> bool:  # noqa: N802
        """Wait for all operations."""
        return bool(wait(lambda: _REQUEST.Testall(requests, statuses), _watch_all(requests)))

    @classmethod
    def waitall(cls, requests: Sequence[Any], statuses: Any = None) -> list[Any]:
        """Wait for all operations; returns the objects that they received."""
        found = wait(lambda: _REQUEST.testall(requests, statuses), _watch_all(requests), _first)
        return list(found[1] or ())

    @classmethod
    def Waitany(cls, requests: Sequence[Any], status: Any = None) -> int:  # noqa: N802
        """Wait for one of the operations; returns its place."""
        test = lambda: _REQUEST.Testany(requests, status)  # noqa: E731
        return int(wait(test, _watch_all(requests), lambda found: found[1])[0])

    @classmethod
    def waitany(cls, requests: Sequence[Any], status: Any = None) -> tuple[int, Any]:
        """Wait for one of the operations; returns its place, and the object that it received."""
        test = lambda: _REQUEST.testany(requests, status)  # noqa: E731
        place, _, received = wait(test, _watch_all(requests), lambda found: found[1])
        return place, received

    @classmethod
    def Waitsome(cls, requests: Sequence[Any], statuses: Any = None) -> Any:  # noqa: N802
        """Wait for at least one of the operations; returns their places."""
        test = lambda: _REQUEST.Testsome(requests, statuses)  # noqa: E731
        return wait(test, _watch_all(requests), lambda found: found is None or bool(found))

    @classmethod
    def waitsome(cls, requests: Sequence[Any], statuses: Any = None) -> Any:
        """Wait for at least one of the operations; returns their places and received objects."""
        test = lambda: _REQUEST.testsome(requests, statuses)  # noqa: E731
        return wait(test, _watch_all(requests), lambda found: found[0] is None or bool(found[0]))


def _first(found: tuple[Any, ...]) -> Any:
    return found[0]


def _watch_all(requests: Sequence[Any]) -> Watch:
    watches = {getattr(each, "watch", no_watch) for each in requests}

    def watch() -> None:
        for each in watches:
            each()

    return watch


_REQUEST, _PREQUEST, _MESSAGE = MPI.Request, MPI.Prequest, MPI.Message


class Request(_WatchedRequest, MPI.Request, metaclass=_CallKind):  # type: ignore[misc]
    """A request whose waits end when a process is gone."""


class Prequest(_WatchedRequest, MPI.Prequest, metaclass=_CallKind):  # type: ignore[misc]
    """A persistent request of the same kind."""


class Message(MPI.Message, metaclass=_CallKind):
    """A message that was matched; receiving it ends when its sender is gone."""

    watch: Watch = staticmethod(no_watch)

    def Recv(self, buf: Any, status: Any = None) -> None:  # noqa: N802 - MPI's own name
        """Receive it into a buffer."""
        self.Irecv(buf).Wait(status)

    def recv(self, status: Any = None) -> Any:
        """Receive it as an object."""
        return self.irecv().wait(status)

    def Irecv(self, buf: Any) -> Any:  # noqa: N802 - MPI's own name
        """Begin to receive it into a buffer."""
        return guarded(Request, super().Irecv(buf), self.watch)

    def irecv(self) -> Any:
        """Begin to receive it as an object."""
        return guarded(Request, super().irecv(), self.watch)

    @classmethod
    def Probe(cls, comm: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Wait for a message of a communicator."""
        return comm.Mprobe(*args, **kwargs)

    @classmethod
    def probe(cls, comm: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait for a message of a communicator that is an object."""
        return comm.mprobe(*args, **kwargs)

    @classmethod
    def Iprobe(cls, comm: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Look for a message of a communicator."""
        return comm.Improbe(*args, **kwargs)

    @classmethod
    def iprobe(cls, comm: Any, *args: Any, **kwargs: Any) -> Any:
        """Look for a message of a communicator that is an object."""
        return comm.improbe(*args, **kwargs)


# programs wait by functions of these classes: MPI.Request.Waitall(requests)
MPI.Request, MPI.Prequest, MPI.Message = Request, Prequest, Message  # type: ignore[misc]
