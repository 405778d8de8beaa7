"""A gang: the ranks of one MPI task, each in the agent of its node, with a communicator for all.

If a process of it is gone, MPI would hang in the others. So they end as well, and their nodes count
as lost: the task runs again, as any task does that loses its node.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qtide.errors import PhaseError, QtideError
from qtide.mpi import join
from qtide.mpi.communicator import Communicator
from qtide.mpi.hub import Hub, own_address
from qtide.mpi.library import library
from qtide.mpi.lines import end_at_once
from qtide.mpi.station import MemberStation, Station

MEET_LIMIT = 60.0
"""Seconds within which all ranks have to have met."""
LOOK = 0.005
"""Seconds between two looks."""


@dataclass(frozen=True)
class Rank:
    """A function as one rank of a gang: calling it meets the others, and gives it `comm`."""

    function: Callable[..., Any]
    rank: int
    size: int
    place: str
    """A file, new for every attempt, in which the first rank says where it is."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns on this rank."""
        station, raw = _lead(self) if self.rank == 0 else _follow(self)
        # mpi4py's own communicator may hold Python's lock while it waits
        comm = Communicator(raw, lambda: _raise_failure(station))
        try:
            result = self.function(*args, **kwargs, comm=comm)
            comm.barrier()
            raw.Free()
        except Exception as error:
            station.fail(_packed(error))
            raise
        finally:
            station.leave()
        return result


class _Leader(Hub):
    def lose(self, member: int) -> None:
        super().lose(member)
        if member in self.lost:
            end_at_once(1)


def _lead(who: Rank) -> tuple[Station, Any]:
    hub, arrived = _Leader(own_address()), threading.Semaphore(0)
    others = range(1, who.size)
    told = [hub.expect(other, 0, arrived.release) for other in others]
    _publish(Path(who.place), "\n".join(told))
    for _ in others:
        if not arrived.acquire(timeout=MEET_LIMIT):
            raise QtideError(f"the ranks of an MPI task did not meet within {MEET_LIMIT:g} s")
    ports = join.opened(len(others))
    hub.tell(list(others), {"join": ports})
    alone = library().MPI.COMM_SELF
    comm = join.taken_in(alone, join.met(ports, _watch), _watch) if others else alone.Dup()
    join.closed(ports)
    Path(who.place).unlink()
    return hub, comm


def _follow(who: Rank) -> tuple[Station, Any]:
    host, port, identity, generation, key = _read(Path(who.place), who.rank).split()
    station = MemberStation((host, int(port)), int(identity), int(generation), key)
    return station, join.joined(station.order()["join"], who.rank - 1, _watch)


def _watch() -> None:
    """Whoever is missed ends this process."""


def _raise_failure(station: Station) -> None:
    """What one rank has raised, all raise: otherwise they would wait for it."""
    if station.failure is not None:
        raise pickle.loads(b64decode(station.failure))


def _packed(error: Exception) -> str:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # whatever an exception of a user may do
        data = pickle.dumps(PhaseError(f"{type(error).__name__}: {error}"))
    return b64encode(data).decode()


def _publish(file: Path, text: str) -> None:
    """Nobody else may read it, and nobody reads half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(text)
    draft.replace(file)


def _read(file: Path, rank: int) -> str:
    last = time.monotonic() + MEET_LIMIT
    while not file.exists():
        if time.monotonic() > last:
            raise QtideError(f"the ranks of an MPI task did not meet within {MEET_LIMIT:g} s")
        time.sleep(LOOK)
    return file.read_text().splitlines()[rank - 1]
