"""mpi4py's communicators, except that no operation hangs when a process is gone.

MPICH waits for a lost process forever. So each operation that blocks in mpi4py is here a
non-blocking one, tested until it completes while the caller watches the other processes.
Non-blocking operations return requests that wait in the same way, and derived communicators are
guarded too.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from qtide.core.errors import UsageError
from qtide.mpi.landing import blocking
from qtide.mpi.library import MPI
from qtide.mpi.watched import (
    Message,
    Prequest,
    Request,
    Watch,
    call,
    complete,
    guarded,
    no_watch,
    receive,
    wait,
)


class Guarded:
    """Operations common to all kinds of communicators."""

    watch: Watch
    Barrier: Any

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.Barrier()

    @property
    def raw(self) -> Any:
        """The underlying mpi4py communicator; do not mix its collectives with this one's."""
        return _RAW[type(self)](self)

    def Recv(  # noqa: N802 - MPI's own name
        self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: Any = None
    ) -> None:
        """Receive into a buffer."""
        if source == MPI.ANY_SOURCE:
            self.Mprobe(source, tag).Recv(buf, status)
        else:
            receive(_COMM.Irecv(self, buf, source, tag), self.watch, status)

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
        if source == MPI.ANY_SOURCE:
            sent = _COMM.Isend(self, sendbuf, dest, sendtag)
            self.Recv(recvbuf, source, recvtag, status)
        else:
            received = _COMM.Irecv(self, recvbuf, source, recvtag)
            sent = _COMM.Isend(self, sendbuf, dest, sendtag)
            receive(received, self.watch, status)
        complete(sent, self.watch)

    def Sendrecv_replace(  # noqa: N802 - MPI's own name
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: Any = None,
    ) -> None:
        """Send and receive at the same time, using one buffer."""
        later = source == MPI.ANY_SOURCE
        begun = MPI.PROC_NULL if later else source
        request = _COMM.Isendrecv_replace(self, buf, dest, sendtag, begun, recvtag)
        if later:  # MPI sends a copy of the buffer
            self.Recv(buf, source, recvtag, status)
            complete(request, self.watch)
        else:
            receive(request, self.watch, status)

    def Probe(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Wait for a message."""
        return wait(lambda: _COMM.Iprobe(self, *args, **kwargs), self.watch)

    probe = Probe

    def Mprobe(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Wait for a message and match it."""
        found = wait(lambda: _COMM.Improbe(self, *args, **kwargs), self.watch, _is_some)
        return guarded(Message, found, self.watch)

    def Iprobe(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Look for a message."""
        self.watch()
        return _COMM.Iprobe(self, *args, **kwargs)

    def Improbe(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - MPI's own name
        """Match a message, if there is one."""
        self.watch()
        return guarded(Message, _COMM.Improbe(self, *args, **kwargs), self.watch)

    def mprobe(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for an object and match it."""
        found = wait(lambda: _COMM.improbe(self, *args, **kwargs), self.watch, _is_some)
        return guarded(Message, found, self.watch)

    iprobe = Iprobe

    def improbe(self, *args: Any, **kwargs: Any) -> Any:
        """Match an object, if there is one."""
        self.watch()
        return guarded(Message, _COMM.improbe(self, *args, **kwargs), self.watch)

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object."""
        complete(_COMM.isend(self, obj, dest, tag), self.watch)

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object and wait until the receiver has begun to receive it."""
        complete(_COMM.issend(self, obj, dest, tag), self.watch)

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
        """Send an object and receive one at the same time."""
        sent = _COMM.isend(self, sendobj, dest, sendtag)
        received = self.recv(recvbuf, source, recvtag, status)
        complete(sent, self.watch)
        return received

    def Dup(self, info: Any = None) -> Any:  # noqa: N802 - MPI's own name
        """Return a copy of the communicator."""
        begun = _COMM.Idup(self, info)
        complete(begun[1], self.watch)
        begun[0].watch = self.watch
        return begun[0]

    Clone = Dup

    def Dup_with_info(self, info: Any) -> Any:  # noqa: N802 - MPI's own name
        """Return a copy of the communicator with different hints."""
        return self.Dup(info)

    def Idup(self, info: Any = None) -> Any:  # noqa: N802 - MPI's own name
        """Start copying the communicator."""
        comm, request = _COMM.Idup(self, info)
        comm.watch = self.watch
        return comm, guarded(Request, request, self.watch)

    def Idup_with_info(self, info: Any) -> Any:  # noqa: N802 - MPI's own name
        """Start copying the communicator with different hints."""
        return self.Idup(info)

    def Detach_buffer(self) -> Any:  # noqa: N802 - MPI's own name
        """Detach the buffer of `Bsend` once everything in it has been sent."""
        complete(_COMM.Iflush_buffer(self), self.watch)
        return _COMM.Detach_buffer(self)


def _is_some(found: object) -> bool:
    return found is not None


class _Objects(Guarded):
    """Collectives on Python objects: exchange their sizes, then their bytes."""

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
    Ialltoallv: Any

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
        """Send one object to each rank; return the objects received."""
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
    """The communicator of a job: mpi4py's operations, none of which hangs."""

    def __new__(cls, raw: Any = None, watch: Watch = no_watch) -> Communicator:
        """Wrap an mpi4py communicator."""
        made: Communicator = super().__new__(cls, raw)
        made.watch = watch
        return made

    def __init__(self, raw: Any = None, watch: Watch = no_watch) -> None:
        """Do nothing: mpi4py creates communicators in `__new__`."""

    def become(self, raw: Any, watch: Watch) -> None:
        """Stand for another communicator, so that programs keep one object through all changes."""
        ctypes.memmove(MPI._addressof(self), MPI._addressof(raw), MPI._sizeof(raw))
        self.watch = watch

    def refuse(self, why: Callable[[], str]) -> None:
        """Raise a UsageError with this text at every use, until `allow`."""
        self.why = why
        self.__class__ = _RefusedCommunicator

    def allow(self) -> None:
        """Allow the use again."""


class _RefusedCommunicator(Communicator):
    """A communicator that the program has but cannot use now."""

    def __getattribute__(self, name: str) -> Any:
        if name == "allow":
            return lambda: setattr(self, "__class__", Communicator)
        raise UsageError(object.__getattribute__(self, "why")())


class _Topology(_Objects):
    """A communicator with neighbours."""

    indegree: int
    outdegree: int
    Neighbor_allgather: Any
    Neighbor_allgatherv: Any
    Neighbor_alltoall: Any
    Neighbor_alltoallv: Any

    def neighbor_allgather(self, sendobj: Any) -> list[Any]:
        """Return the objects of all neighbours; None for missing ones."""
        packed, sizes = _packed(sendobj), np.zeros(self.indegree, dtype=np.int64)
        self.Neighbor_allgather(np.array([len(packed)]), sizes)
        data = np.empty(int(sizes.sum()), np.uint8)
        self.Neighbor_allgatherv(packed, [data, sizes])
        return _split(data, sizes)

    def neighbor_alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """Send one object to each neighbour; return the objects received."""
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
    """A communicator between two groups, without collectives on objects."""


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
    """Unpack consecutive objects; one without bytes was not sent and becomes None."""
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
"""Blocking operations; each has a non-blocking counterpart with the same arguments."""
MORE_REQUESTS = ("Irecv", "Isendrecv", "Isendrecv_replace", "Ibsend")
OBJECT_REQUESTS = ("isend", "issend", "ibsend", "irecv")

CREATING = (
    *("Split", "Split_type", "Create", "Create_cart", "Create_graph"),
    *("Create_dist_graph_adjacent", "Create_group", "Create_intercomm", "Sub", "Merge"),
    "Disconnect",
)
"""Operations that exist only in a blocking form. A barrier precedes most of them, to notice
processes that are already gone."""
WITHOUT_BARRIER = ("Create_group", "Merge", "Create_intercomm", "Disconnect")
"""Operations in which not all ranks of the communicator take part, or others do as well."""
REFUSED = {
    **dict.fromkeys(("Accept", "Connect", "Join"), "use MPI.COMM_SELF on the root"),
    **dict.fromkeys(("Spawn", "Spawn_multiple"), "use Job.expand()"),
    "Psend_init": "MPICH hangs in it; use Send_init",
    "Precv_init": "MPICH hangs in it; use Recv_init",
    "Create_dist_graph": "MPICH hangs in it; use Create_dist_graph_adjacent",
    "Create_from_group": "MPICH aborts in it; use Create_group",
    **dict.fromkeys(("Agree", "Iagree", "Shrink", "Ishrink", "Revoke"), "use Job.recover()"),
}
"""Operations that a guarded communicator refuses, and what to do instead."""


SOURCES = {"Irecv": 1, "irecv": 1, "Recv_init": 1, "Isendrecv": 4, "Isendrecv_replace": 3}
"""Receives that are posted, and the place of their argument `source`."""
RECEIVES = ("Irecv", "Recv_init")
"""Receives into a buffer that can be cancelled."""


def _non_blocking(start: Any, kind: Any) -> Any:
    sends = "send" in start.__name__.lower() and "recv" not in start.__name__
    place = SOURCES.get(start.__name__)

    def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        if place is not None and self.size > 1:
            source = args[place] if len(args) > place else kwargs.get("source", MPI.ANY_SOURCE)
            if source == MPI.ANY_SOURCE:
                raise UsageError(
                    f"{start.__name__} from any source is not possible on a job's communicator: "
                    "MPICH does not end it if the message comes first; name the source, or use Recv"
                )
        request = guarded(kind, start(self, *args, **kwargs), self.watch)
        request.sends = sends
        request.receives = start.__name__ in RECEIVES
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
        return guarded(_GUARDED[raw], made, self.watch)

    return operation


def _refused(name: str, instead: str) -> Any:
    def operation(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise UsageError(f"{name} is not possible on a job's communicator; {instead}")

    return operation


def _guard(kind: type, raw: Any) -> None:
    """Add guarded versions of the operations that mpi4py's class `raw` has."""
    for name in BLOCKING:
        start = f"I{name.lower()}"
        if hasattr(raw, start):
            setattr(kind, name, blocking(getattr(raw, start), name))
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
