"""Join and split communicators by MPI's calls, which are blocking and therefore watched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from qtide.mpi.control import NodesLost
from qtide.mpi.library import library
from qtide.mpi.watched import Watch, call

TAG = 1
"""The tag of messages that join communicators."""
ACCEPT_LIMIT = 3
"""Seconds within which a newcomer with a control connection must connect by MPI."""


def open_ports(count: int) -> list[str]:
    """Open one port per newcomer, which fixes their order."""
    return [library().MPI.Open_port() for _ in range(count)]


def close_ports(ports: Sequence[str]) -> None:
    """Close ports to which newcomers have connected.

    Leave others open: an accept that timed out is still posted in MPICH and would take the next
    process that connects to a port of the same number.
    """
    for port in ports:
        library().MPI.Close_port(port)


def accept(ports: Sequence[str], watch: Watch) -> list[Any]:
    """Accept each newcomer within a time limit (root only); return a communicator for each."""
    return [call(partial(_accept, port), watch) for port in ports]


def extend(comm: Any, pairs: Sequence[Any], watch: Watch) -> Any:
    """Extend a communicator by each pair's newcomer; ranks other than the root pass None pairs."""
    return call(lambda: _extend(comm, pairs), watch)


def connect(ports: Sequence[str], place: int, watch: Watch) -> Any:
    """Connect as the newcomer with the port at `place`; return the extended communicator."""

    def join() -> Any:
        alone = library().MPI.COMM_SELF
        pair = _merge(alone.Connect(ports[place]), high=True)
        comm = _merge(alone.Create_intercomm(0, pair, 0, TAG), high=True)
        pair.Free()
        return _extend(comm, [None] * len(ports[place + 1 :]), own=True)

    return call(join, watch)


def split(comm: Any, ranks: Sequence[int], change: int, watch: Watch) -> Any:
    """Return a communicator of some ranks of `comm`; the other ranks do not take part."""
    if list(ranks) == [comm.Get_rank()]:
        return library().alone
    group = comm.Get_group().Incl(list(ranks))
    return call(lambda: comm.Create_group(group, change % 2**15), watch)


def _accept(port: str) -> Any:
    MPI = library().MPI  # noqa: N806 - its own name
    limit = MPI.Info.Create({"timeout": str(ACCEPT_LIMIT)})
    try:
        return _merge(MPI.COMM_SELF.Accept(port, limit), high=False)
    except MPI.Exception:
        raise NodesLost(f"a newcomer did not connect within {ACCEPT_LIMIT} s") from None


def _extend(comm: Any, pairs: Sequence[Any], *, own: bool = False) -> Any:
    """Add one process after another and free the intermediate communicators."""
    for pair in pairs:
        # only the root's pair matters
        larger = _merge(comm.Create_intercomm(0, pair or comm, 1, TAG), high=False)
        if own:
            comm.Free()
        if pair:
            pair.Free()
        comm, own = larger, True
    return comm


def _merge(inter: Any, *, high: bool) -> Any:
    """Merge the two sides of an intercommunicator; the side with `high=False` comes first."""
    comm = inter.Merge(high=high)
    inter.Free()
    return comm
