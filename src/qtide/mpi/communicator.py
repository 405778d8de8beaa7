"""A communicator whose operations end when a process of it is gone, instead of hanging."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import count
from typing import Any, Generic, TypeVar

from qtide.core.errors import QtideError
from qtide.mpi.control import NodesLost
from qtide.mpi.library import library

T = TypeVar("T")

Watch = Callable[[], None]
"""Raises if what is waited for will never come."""

SPIN = 0.002
"""Seconds in which an answer is looked for without a pause,"""
NAP_FIRST, NAP_MOST = 50e-6, 1e-3
"""and the pauses from then on."""
EAGER = 64
"""How often large data is tested before other processes of this machine have their turn,"""
NAP_EAGER = 20e-6
"""for so many seconds: who sleeps has the processor back sooner than who yields."""
LOOK = 0.002
"""Seconds between two looks at whether a blocking call is still worth waiting for."""
CALL_LIMIT = 60.0
"""Seconds within which a blocking call has to end if all who take part are there."""
GRACE = 10.0
"""Seconds within which a blocking call has to end that was given up; its own limit is shorter."""


class MpiStuck(QtideError):  # noqa: N818 - what happened
    """MPI hangs: no other call would return either."""


def complete(request: Any, watch: Watch, *, eager: bool = False) -> None:
    """Wait for a non-blocking operation; if eager, without pauses, for large data."""
    began, nap = time.monotonic(), NAP_FIRST
    for tests in count():  # MPICH only makes progress while it is tested
        if request.Test():
            return
        watch()
        if eager:
            if tests % EAGER == 0:
                time.sleep(NAP_EAGER)
        elif time.monotonic() - began < SPIN:
            os.sched_yield()
        else:
            time.sleep(nap)
            nap = min(2 * nap, NAP_MOST)


def call(function: Callable[[], T], watch: Watch) -> T:
    """Make a call that only exists in a blocking form, in a thread, and watch meanwhile.

    MPICH lets no other call pass while one is connecting. So a call that was given up is waited
    for: it has a limit of its own. If it hangs nevertheless, nothing more can be done with MPI.
    """
    made = _Call(function)
    try:
        _await(made, watch)
    except NodesLost:
        if not made.ended.wait(GRACE):
            library().stuck = True
            raise MpiStuck(
                "MPI hangs, as a node was lost while it was being connected; start the program "
                "again, from what was saved"
            ) from None
        raise
    if made.error is not None:
        raise made.error
    return made.result


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


def _await(made: _Call[T], watch: Watch) -> None:
    last = time.monotonic() + CALL_LIMIT
    while not made.ended.wait(LOOK):
        watch()
        if time.monotonic() > last:
            raise NodesLost(f"MPI has not joined the processes of the job in {CALL_LIMIT:g} s")


BLOCKING = {
    *("Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv"),
    *("Alltoall", "Alltoallv", "Alltoallw", "Reduce", "Allreduce", "Reduce_scatter"),
    *("Reduce_scatter_block", "Scan", "Exscan", "Send", "Ssend", "Recv"),
    *("Neighbor_allgather", "Neighbor_alltoall"),
}
"""mpi4py's blocking operations on buffers; each has a non-blocking one of the same arguments."""


class Communicator:
    """mpi4py's communicator `raw`; what blocks there is watched here.

    Operations on buffers (`Allreduce`) and on Python objects (`allreduce`) are those of mpi4py.
    Blocking and non-blocking operations do not match each other, so use `raw` for all or nothing.
    """

    def __init__(self, raw: Any, watch: Watch) -> None:
        self.raw = raw
        self.watch = watch
        self.rank: int = raw.Get_rank()
        self.size: int = raw.Get_size()

    def __getattr__(self, name: str) -> Any:
        if name not in BLOCKING:
            return getattr(self.raw, name)
        begin = getattr(self.raw, f"I{name.lower()}")
        return lambda *args, **kwargs: self.complete(begin(*args, **kwargs))

    def Get_rank(self) -> int:  # noqa: N802 - MPI's own name
        """The number of this process."""
        return self.rank

    def Get_size(self) -> int:  # noqa: N802 - MPI's own name
        """The number of processes."""
        return self.size

    def complete(self, request: Any, *, eager: bool = False) -> None:
        """Wait for an operation; NodesLost if a process of the communicator is gone."""
        complete(request, self.watch, eager=eager)

    def Sendrecv(  # noqa: N802 - MPI's own name
        self,
        data: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = -1,
        recvtag: int = -1,
    ) -> None:
        """Send and receive at the same time."""
        requests = [self.raw.Irecv(recvbuf, source, recvtag), self.raw.Isend(data, dest, sendtag)]
        for request in requests:
            self.complete(request)

    def barrier(self) -> None:
        """Wait for all."""
        self.complete(self.raw.Ibarrier())

    def send(self, data: Any, dest: int, tag: int = 0) -> None:
        """Send an object."""
        self.complete(self.raw.isend(data, dest, tag))

    def recv(self, source: int = -1, tag: int = -1) -> Any:
        """Receive an object."""
        MPI = library().MPI  # noqa: N806 - its own name
        source = MPI.ANY_SOURCE if source < 0 else source
        tag = MPI.ANY_TAG if tag < 0 else tag
        while (message := self.raw.improbe(source, tag)) is None:
            self._pause()
        request = message.irecv()
        while not (answer := request.test())[0]:
            self._pause()
        return answer[1]

    def _pause(self) -> None:
        self.watch()
        time.sleep(NAP_FIRST)

    def bcast(self, data: Any = None, root: int = 0) -> Any:
        """The root's object, for all."""
        packed = pickle.dumps(data) if self.rank == root else b""
        size = self._sizes(len(packed), root)
        buffer = bytearray(packed) if self.rank == root else bytearray(size)
        self.Bcast(buffer, root)
        return data if self.rank == root else pickle.loads(buffer)

    def allgather(self, data: Any) -> list[Any]:
        """The objects of all, for all."""
        import numpy as np

        packed = np.frombuffer(pickle.dumps(data), dtype=np.uint8)
        sizes = np.zeros(self.size, dtype=np.int64)
        self.Allgather(np.array([len(packed)], dtype=np.int64), sizes)
        received = np.empty(int(sizes.sum()), dtype=np.uint8)
        self.Allgatherv(packed, [received, sizes])
        parts = np.split(received, np.cumsum(sizes)[:-1])
        return [pickle.loads(part.tobytes()) for part in parts]

    def gather(self, data: Any, root: int = 0) -> list[Any] | None:
        """The objects of all, for the root."""
        found = self.allgather(data)
        return found if self.rank == root else None

    def scatter(self, data: Sequence[Any] | None, root: int = 0) -> Any:
        """One of the root's objects for each."""
        return self.bcast(data, root)[self.rank]

    def allreduce(self, data: Any, op: Callable[[Any, Any], Any] | None = None) -> Any:
        """The sum of all objects, or what another operation makes of them."""
        return reduce(op or library().MPI.SUM, self.allgather(data))

    def reduce(
        self, data: Any, op: Callable[[Any, Any], Any] | None = None, root: int = 0
    ) -> Any | None:
        """The same, for the root."""
        found = self.allreduce(data, op)
        return found if self.rank == root else None

    def _sizes(self, size: int, root: int) -> int:
        import numpy as np

        sizes = np.array([size], dtype=np.int64)
        self.Bcast(sizes, root)
        return int(sizes[0])
