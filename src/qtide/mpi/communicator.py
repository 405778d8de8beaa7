"""mpi4py's communicators, except that no operation hangs when a process is gone.

MPICH waits for a lost process for ever. So what blocks in mpi4py is here a non-blocking operation
that is tested until it ends, while somebody watches the processes. Non-blocking operations return
requests that are waited for in the same way, and derived communicators are guarded as well.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

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


def _no_watch() -> None:
    """Watch nothing: requests of mpi4py's own communicators can hang, as they always did."""


class _CallKind(type):
    """Lets objects that mpi4py made count as instances of the guarded class, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__bases__[-1])


class _WatchedRequest:
    """What blocks in a request, as tests in a loop."""

    watch: Watch = staticmethod(_no_watch)
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
    watches = {getattr(each, "watch", _no_watch) for each in requests}

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

    watch: Watch = staticmethod(_no_watch)

    def Recv(self, buf: Any, status: Any = None) -> None:  # noqa: N802 - MPI's own name
        """Receive it into a buffer."""
        self.Irecv(buf).Wait(status)

    def recv(self, status: Any = None) -> Any:
        """Receive it as an object."""
        return self.irecv().wait(status)

    def Irecv(self, buf: Any) -> Any:  # noqa: N802 - MPI's own name
        """Begin to receive it into a buffer."""
        return _guarded(Request, super().Irecv(buf), self.watch)

    def irecv(self) -> Any:
        """Begin to receive it as an object."""
        return _guarded(Request, super().irecv(), self.watch)

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


def _guarded(kind: Any, made: Any, watch: Watch) -> Any:
    """Give an object of mpi4py its guarded class."""
    if made is None:
        return None
    guarded = kind(made)
    guarded.watch = watch
    return guarded


class Guarded:
    """What communicators of all kinds have in common."""

    watch: Watch
    Barrier: Any

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.Barrier()

    @property
    def raw(self) -> Any:
        """Mpi4py's own communicator; its collectives do not match those of this one."""
        return _RAW[type(self)](self)

    def Recv(  # noqa: N802 - MPI's own name
        self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: Any = None
    ) -> None:
        """Receive into a buffer."""
        request = _COMM.Irecv(self, buf, source, tag)
        wait(lambda: request.Test(status), self.watch)

    def Sendrecv(  # noqa: N802 - MPI's own name
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: Any = None,
    ) -> None:
        """Send and receive at the same time."""
        received = _COMM.Irecv(self, recvbuf, source, recvtag)
        sent = _COMM.Isend(self, sendbuf, dest, sendtag)
        wait(lambda: received.Test(status), self.watch)
        wait(sent.Test, self.watch)

    def Sendrecv_replace(  # noqa: N802 - MPI's own name
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: Any = None,
    ) -> None:
        """Send and receive at the same time, in one buffer."""
        request = _COMM.Isendrecv_replace(self, buf, dest, sendtag, source, recvtag)
        wait(lambda: request.Test(status), self.watch)

    def Probe(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Wait for a message."""
        return wait(lambda: _COMM.Iprobe(self, *args, **kwargs), self.watch)

    def Mprobe(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Wait for a message, and match it."""
        found = wait(lambda: _COMM.Improbe(self, *args, **kwargs), self.watch, _is_some)
        return _guarded(Message, found, self.watch)

    def Improbe(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Match a message, if there is one."""
        return _guarded(Message, _COMM.Improbe(self, *args, **kwargs), self.watch)

    def probe(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for an object."""
        return wait(lambda: _COMM.iprobe(self, *args, **kwargs), self.watch)

    def mprobe(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for an object, and match it."""
        found = wait(lambda: _COMM.improbe(self, *args, **kwargs), self.watch, _is_some)
        return _guarded(Message, found, self.watch)

    def improbe(self, *args: Any, **kwargs: Any) -> Any:
        """Match an object, if there is one."""
        return _guarded(Message, _COMM.improbe(self, *args, **kwargs), self.watch)

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object."""
        wait(_COMM.isend(self, obj, dest, tag).Test, self.watch)

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object, and wait until it is being received."""
        wait(_COMM.issend(self, obj, dest, tag).Test, self.watch)

    def recv(
        self,
        buf: Any = None,
        source: int = MPI.ANY_SOURCE,
        tag: int = MPI.ANY_TAG,
        status: Any = None,
    ) -> Any:
        """Receive an object."""
        if buf is not None:
            warnings.warn("recv() ignores its argument buf", UserWarning, stacklevel=2)
        return self.mprobe(source, tag).recv(status)

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: Any = None,
    ) -> Any:
        """Send an object, and receive one at the same time."""
        sent = _COMM.isend(self, sendobj, dest, sendtag)
        received = self.recv(recvbuf, source, recvtag, status)
        wait(sent.Test, self.watch)
        return received

    def Dup(self, info: Any = None) -> Any:  # noqa: N802 - MPI's own name
        """Return a copy of the communicator."""
        begun = _COMM.Idup(self, info)
        wait(begun[1].Test, self.watch)
        begun[0].watch = self.watch
        return begun[0]

    Clone = Dup

    def Dup_with_info(self, info: Any) -> Any:  # noqa: N802 - MPI's own name
        """Return a copy of the communicator with other hints."""
        return self.Dup(info)

    def Idup(self, info: Any = None) -> Any:  # noqa: N802 - MPI's own name
        """Begin to copy the communicator."""
        comm, request = _COMM.Idup(self, info)
        comm.watch = self.watch
        return comm, _guarded(Request, request, self.watch)

    def Idup_with_info(self, info: Any) -> Any:  # noqa: N802 - MPI's own name
        """Begin to copy the communicator with other hints."""
        return self.Idup(info)

    def Detach_buffer(self) -> Any:  # noqa: N802 - MPI's own name
        """Take the buffer of Bsend away, once everything in it was sent."""
        wait(_COMM.Iflush_buffer(self).Test, self.watch)
        return _COMM.Detach_buffer(self)


def _is_some(found: object) -> bool:
    return found is not None


class _Objects(Guarded):
    """Collectives on Python objects: their sizes first, then their bytes."""

    rank: int
    size: int
    Bcast: Any
    Gather: Any
    Gatherv: Any
    Scatter: Any
    Scatterv: Any
    Allgather: Any
    Allgatherv: Any
    Alltoall: Any
    Alltoallv: Any

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        """Return the root's object on every rank."""
        packed = _packed(obj) if self.rank == root else _NOTHING
        size = np.array([len(packed)])
        self.Bcast(size, root)
        data = packed if self.rank == root else np.empty(int(size[0]), np.uint8)
        self.Bcast(data, root)
        return obj if self.rank == root else _unpacked(data)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Return the objects of all ranks on the root."""
        packed, here = _packed(sendobj), self.rank == root
        sizes = np.zeros(self.size if here else 0, dtype=np.int64)
        self.Gather(np.array([len(packed)]), sizes if here else None, root)
        data = np.empty(int(sizes.sum()), np.uint8)
        self.Gatherv(packed, [data, sizes] if here else None, root)
        return _split(data, sizes) if here else None

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """Return one of the root's objects on each rank."""
        size, sizes, parts = np.zeros(1, dtype=np.int64), None, []
        if self.rank == root:
            parts = _packed_each(sendobj, self.size)
            sizes = np.array([len(part) for part in parts])
        self.Scatter(sizes, size, root)
        data = np.empty(int(size[0]), np.uint8)
        whole = [np.concatenate(parts), sizes] if self.rank == root else None
        self.Scatterv(whole, data, root)
        return _unpacked(data)

    def allgather(self, sendobj: Any) -> list[Any]:
        """Return the objects of all ranks on every rank."""
        packed, sizes = _packed(sendobj), np.zeros(self.size, dtype=np.int64)
        self.Allgather(np.array([len(packed)]), sizes)
        data = np.empty(int(sizes.sum()), np.uint8)
        self.Allgatherv(packed, [data, sizes])
        return _split(data, sizes)

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """Send each rank an object; returns theirs."""
        parts, sizes = _packed_each(sendobj, self.size), np.zeros(self.size, dtype=np.int64)
        own = np.array([len(part) for part in parts])
        self.Alltoall(own, sizes)
        data = np.empty(int(sizes.sum()), np.uint8)
        self.Alltoallv([np.concatenate(parts), own], [data, sizes])
        return _split(data, sizes)

    def reduce(self, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Any:
        """Return the combined objects of all ranks on the root."""
        found = self.gather(sendobj, root)
        return None if found is None else reduce(op, found)

    def allreduce(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        """Return the combined objects of all ranks on every rank."""
        return reduce(op, self.allgather(sendobj))

    def scan(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        """Return the combined objects of the ranks up to this one."""
        return reduce(op, self.allgather(sendobj)[: self.rank + 1])

    def exscan(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
        """Return the combined objects of the ranks before this one; None on the first."""
        before = self.allgather(sendobj)[: self.rank]
        return reduce(op, before) if before else None


class Communicator(_Objects, MPI.Intracomm):
    """The communicator of a job: all operations of mpi4py's, none of which hangs."""

    def __new__(cls, raw: Any = None, watch: Watch = _no_watch) -> Communicator:
        """Guard a communicator of mpi4py."""
        made: Communicator = super().__new__(cls, raw)
        made.watch = watch
        return made

    def __init__(self, raw: Any = None, watch: Watch = _no_watch) -> None:
        """Do nothing: mpi4py makes communicators in `__new__`."""


class _Topology(_Objects):
    """A communicator with neighbours."""

    indegree: int
    outdegree: int
    Neighbor_allgather: Any
    Neighbor_allgatherv: Any
    Neighbor_alltoall: Any
    Neighbor_alltoallv: Any

    def neighbor_allgather(self, sendobj: Any) -> list[Any]:
        """Return the objects of all neighbours; None for those that are missing."""
        packed, sizes = _packed(sendobj), np.zeros(self.indegree, dtype=np.int64)
        self.Neighbor_allgather(np.array([len(packed)]), sizes)
        data = np.empty(int(sizes.sum()), np.uint8)
        self.Neighbor_allgatherv(packed, [data, sizes])
        return _split(data, sizes)

    def neighbor_alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """Send each neighbour an object; returns theirs."""
        parts = _packed_each(sendobj, self.outdegree)
        own, sizes = np.array([len(each) for each in parts]), np.zeros(self.indegree, np.int64)
        self.Neighbor_alltoall(own.astype(np.int64), sizes)
        data = np.empty(int(sizes.sum()), np.uint8)
        self.Neighbor_alltoallv([np.concatenate([_NOTHING, *parts]), own], [data, sizes])
        return _split(data, sizes)


class CartCommunicator(_Topology, MPI.Cartcomm):
    """A communicator whose ranks are the points of a grid."""


class GraphCommunicator(_Topology, MPI.Graphcomm):
    """A communicator whose ranks are the nodes of a graph."""


class DistGraphCommunicator(_Topology, MPI.Distgraphcomm):
    """A communicator whose ranks are the nodes of a distributed graph."""


class InterCommunicator(Guarded, MPI.Intercomm):
    """A communicator of two groups. It has no collectives on objects."""


_NOTHING = np.empty(0, np.uint8)


def _packed(value: Any) -> Any:
    return np.frombuffer(MPI.pickle.dumps(value), dtype=np.uint8)


def _unpacked(data: Any) -> Any:
    return MPI.pickle.loads(data)


def _packed_each(values: Sequence[Any] | None, count: int) -> list[Any]:
    found = [] if values is None else list(values)
    if len(found) != count:
        raise ValueError(f"expecting {count} items, got {len(found)}")
    return [_packed(each) for each in found]


def _split(data: Any, sizes: Any) -> list[Any]:
    """Unpack objects that follow each other; what has no bytes was not sent."""
    ends = np.cumsum(sizes)
    spans = zip((ends - sizes).tolist(), ends.tolist(), strict=True)
    return [_unpacked(data[first:last]) if last > first else None for first, last in spans]


_COMM: Any = MPI.Comm
_RAW: dict[type, Any] = {
    Communicator: MPI.Intracomm,
    CartCommunicator: MPI.Cartcomm,
    GraphCommunicator: MPI.Graphcomm,
    DistGraphCommunicator: MPI.Distgraphcomm,
    InterCommunicator: MPI.Intercomm,
}
_GUARDED = {raw: guarded for guarded, raw in _RAW.items()}

BLOCKING = (
    *("Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv"),
    *("Alltoall", "Alltoallv", "Alltoallw", "Reduce", "Allreduce", "Reduce_scatter"),
    *("Reduce_scatter_block", "Scan", "Exscan", "Send", "Ssend", "Rsend", "Flush_buffer"),
    *("Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall", "Neighbor_alltoallv"),
    "Neighbor_alltoallw",
)
"""Operations that block; each has a non-blocking one with the same arguments."""
MORE_REQUESTS = ("Irecv", "Isendrecv", "Isendrecv_replace", "Ibsend")
OBJECT_REQUESTS = ("isend", "issend", "ibsend", "irecv")

CREATING = (
    *("Split", "Split_type", "Create", "Create_cart", "Create_graph"),
    *("Create_dist_graph_adjacent", "Create_group", "Create_intercomm", "Sub", "Merge"),
    "Disconnect",
)
"""Operations that only exist in a blocking form. Most are preceded by a barrier, so that a process
that is gone already is noticed."""
WITHOUT_BARRIER = ("Create_group", "Merge", "Create_intercomm", "Disconnect")
"""Not all ranks of the communicator take part, or there are more."""
REFUSED = {
    **dict.fromkeys(("Accept", "Connect", "Join"), "use MPI.COMM_SELF on the root"),
    **dict.fromkeys(("Spawn", "Spawn_multiple"), "use Job.expand()"),
    "Psend_init": "MPICH hangs in it; use Send_init",
    "Precv_init": "MPICH hangs in it; use Recv_init",
    "Create_dist_graph": "MPICH hangs in it; use Create_dist_graph_adjacent",
    "Create_from_group": "MPICH aborts in it; use Create_group",
    **dict.fromkeys(("Agree", "Iagree", "Shrink", "Ishrink", "Revoke"), "use Job.recover()"),
}
"""What is not possible on a guarded communicator, and what to do instead."""


def _blocking(start: Any) -> Any:
    def operation(self: Any, *args: Any, **kwargs: Any) -> None:
        wait(start(self, *args, **kwargs).Test, self.watch)

    return operation


def _non_blocking(start: Any, kind: Any) -> Any:
    sends = "send" in start.__name__.lower() and "recv" not in start.__name__

    def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = _guarded(kind, start(self, *args, **kwargs), self.watch)
        if sends:
            request.sends = True
        return request

    return operation


def _creating(create: Any, name: str) -> Any:
    def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name not in WITHOUT_BARRIER:
            self.Barrier()
        made = call(lambda: create(self, *args, **kwargs), self.watch)
        if made is None or made == MPI.COMM_NULL:
            return made
        raw = next(each for each in type(made).__mro__ if each in _GUARDED)
        return _guarded(_GUARDED[raw], made, self.watch)

    return operation


def _refused(name: str, instead: str) -> Any:
    def operation(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise UsageError(f"{name} is not possible on a job's communicator; {instead}")

    return operation


def _guard(kind: type, raw: Any) -> None:
    """Give a class its guarded operations, as far as mpi4py's class has them."""
    for name in BLOCKING:
        start = f"I{name.lower()}"
        if hasattr(raw, start):
            setattr(kind, name, _blocking(getattr(raw, start)))
            setattr(kind, start, _non_blocking(getattr(raw, start), Request))
    for name in chain(MORE_REQUESTS, OBJECT_REQUESTS):
        setattr(kind, name, _non_blocking(getattr(raw, name), Request))
    for name in dir(raw):
        if name.endswith("_init"):
            setattr(kind, name, _non_blocking(getattr(raw, name), Prequest))
    for name in CREATING:
        if hasattr(raw, name):
            setattr(kind, name, _creating(getattr(raw, name), name))
    for name, instead in REFUSED.items():
        if hasattr(raw, name):
            setattr(kind, name, _refused(name, instead))


for _kind, _raw in _RAW.items():
    _guard(_kind, _raw)
for _name in ("bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce"):
    _instead = f"between two groups, use {_name.capitalize()}, on buffers"
    setattr(InterCommunicator, _name, _refused(_name, _instead))
