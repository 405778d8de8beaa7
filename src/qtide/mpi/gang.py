"""A gang: the ranks of one MPI task, each in the agent of its node, with a communicator for all.

If a process of it is gone, MPI would hang in the others. So they end as well, and their nodes count
as lost: the task runs again, as any task does that loses its node.
"""

from __future__ import annotations

import os
import pickle
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

from qtide.core.errors import PhaseError, QtideError
from qtide.mpi import join
from qtide.mpi.communicator import Communicator
from qtide.mpi.control import (
    MEET_LIMIT,
    NOT_MET,
    ControlClient,
    ControlServer,
    MemberClient,
    end_at_once,
    own_address,
)
from qtide.mpi.library import library
from qtide.mpi.rank import Rank

LOOK = 0.005
"""Seconds between two looks."""


def called(who: Rank, *args: Any, **kwargs: Any) -> Any:
    """What the function of a rank returns, with a communicator of all ranks."""
    station, raw = _lead(who) if who.rank == 0 else _follow(who)
    # mpi4py's own communicator may hold Python's lock while it waits
    comm = Communicator(raw, lambda: _raise_failure(station))
    try:
        result = who.function(*args, **kwargs, comm=comm)
        comm.barrier()
        raw.Free()
    except Exception as error:
        station.fail(_packed(error))
        raise
    finally:
        station.leave()
    return result


class _Leader(ControlServer):
    def lose(self, member: int) -> None:
        super().lose(member)
        if member in self.lost:
            end_at_once(1)


def _lead(who: Rank) -> tuple[ControlClient, Any]:
    hub, others = _Leader(own_address()), range(1, who.size)
    hub.gather(others, lambda told: _publish(Path(who.place), "\n".join(told)))
    ports = join.opened(len(others))
    hub.tell(list(others), {"join": ports})
    alone = library().MPI.COMM_SELF
    comm = join.taken_in(alone, join.met(ports, _watch), _watch) if others else alone.Dup()
    join.closed(ports)
    Path(who.place).unlink()
    return hub, comm


def _follow(who: Rank) -> tuple[ControlClient, Any]:
    station = MemberClient.told(_read(Path(who.place), who.rank))
    return station, join.joined(station.order()["join"], who.rank - 1, _watch)


def _watch() -> None:
    """Whoever is missed ends this process."""


def _raise_failure(station: ControlClient) -> None:
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
            raise QtideError(NOT_MET)
        time.sleep(LOOK)
    return file.read_text().splitlines()[rank - 1]
