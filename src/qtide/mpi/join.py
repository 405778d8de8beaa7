"""Joining and parting communicators: calls that block, so each runs with somebody who watches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from qtide.mpi.communicator import Watch, call
from qtide.mpi.control import NodesLost
from qtide.mpi.library import library

TAG = 1
"""Of the messages by which communicators are joined."""
ACCEPT_LIMIT = 3
"""Seconds within which a newcomer that has announced itself has to connect."""


def opened(count: int) -> list[str]:
    """One port for each newcomer, so that their order is known."""
    return [library().MPI.Open_port() for _ in range(count)]


def closed(ports: Sequence[str]) -> None:
    """Close ports at which everybody was met.

    Others stay open: a call that timed out is still posted in MPICH, and would take the next one
    who comes to a port with the same number.
    """
    for port in ports:
        library().MPI.Close_port(port)


def met(ports: Sequence[str], watch: Watch) -> list[Any]:
    """The root meets each newcomer alone: only here can one be missing, and only here is a limit.

    Gives a communicator of the two for each.
    """
    return [call(partial(_met, port), watch) for port in ports]


def taken_in(comm: Any, pairs: Sequence[Any], watch: Watch) -> Any:
    """A communicator with one more process for each pair; other ranks than the root have none."""
    return call(lambda: _extended(comm, pairs), watch)


def joined(ports: Sequence[str], place: int, watch: Watch) -> Any:
    """The same for the newcomer that has the port at `place`."""

    def connect() -> Any:
        alone = library().MPI.COMM_SELF
        pair = _merged(alone.Connect(ports[place]), high=True)
        comm = _merged(alone.Create_intercomm(0, pair, 0, TAG), high=True)
        pair.Free()
        return _extended(comm, [None] * len(ports[place + 1 :]), own=True)

    return call(connect, watch)


def parted(comm: Any, ranks: Sequence[int], turn: int, watch: Watch) -> Any:
    """A communicator of some ranks of another one; the others do not take part."""
    if list(ranks) == [comm.Get_rank()]:
        return library().MPI.COMM_SELF.Dup()
    group = comm.Get_group().Incl(list(ranks))
    return call(lambda: comm.Create_group(group, turn % 2**15), watch)


def _met(port: str) -> Any:
    MPI = library().MPI  # noqa: N806 - its own name
    limit = MPI.Info.Create({"timeout": str(ACCEPT_LIMIT)})
    try:
        return _merged(MPI.COMM_SELF.Accept(port, limit), high=False)
    except MPI.Exception:
        raise NodesLost("a newcomer did not connect") from None


def _extended(comm: Any, pairs: Sequence[Any], *, own: bool = False) -> Any:
    """Take in one process after the other; communicators in between are freed."""
    for pair in pairs:
        # the pair counts at the root alone
        larger = _merged(comm.Create_intercomm(0, pair or comm, 1, TAG), high=False)
        if own:
            comm.Free()
        if pair:
            pair.Free()
        comm, own = larger, True
    return comm


def _merged(inter: Any, *, high: bool) -> Any:
    """One communicator of the two sides; those that are not high come first."""
    comm = inter.Merge(high=high)
    inter.Free()
    return comm
