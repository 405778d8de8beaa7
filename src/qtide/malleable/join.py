"""Joining and parting communicators: calls that block, so each runs with somebody who watches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qtide.mpi.library import library
from qtide.mpi.patience import Watch, call


def opened(count: int) -> list[str]:
    """One port for each newcomer, so that their order is known."""
    return [library().MPI.Open_port() for _ in range(count)]


def closed(ports: Sequence[str]) -> None:
    """Close ports."""
    for port in ports:
        library().MPI.Close_port(port)


def taken_in(comm: Any, ports: Sequence[str], watch: Watch) -> Any:
    """A communicator with one more process for each port; `comm` stays as it is."""
    return call(lambda: _accept(comm, ports), watch)


def joined(ports: Sequence[str], place: int, watch: Watch) -> Any:
    """The same for the newcomer that has the port at `place`."""

    def connect() -> Any:
        inter = library().MPI.COMM_SELF.Connect(ports[place])
        comm = inter.Merge(high=True)
        inter.Free()
        return _accept(comm, ports[place + 1 :], own=True)

    return call(connect, watch)


def parted(comm: Any, ranks: Sequence[int], turn: int, watch: Watch) -> Any:
    """A communicator of some ranks of another one; the others do not take part."""
    if list(ranks) == [comm.Get_rank()]:
        return library().MPI.COMM_SELF.Dup()
    group = comm.Get_group().Incl(list(ranks))
    return call(lambda: comm.Create_group(group, turn % 2**15), watch)


def _accept(comm: Any, ports: Sequence[str], *, own: bool = False) -> Any:
    """Take in one process after the other; communicators in between are freed."""
    for port in ports:
        inter = comm.Accept(port)
        larger = inter.Merge(high=False)
        inter.Free()
        if own:
            comm.Free()
        comm, own = larger, True
    return comm
