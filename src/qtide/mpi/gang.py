"""A gang: the ranks of one MPI task, each in its node's agent, sharing one communicator.

When one process is lost, MPI hangs in the others. So they end as well and their nodes count as
lost; the task then runs again, like any task that loses its node.
"""

from __future__ import annotations

import os
import pickle
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
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
    exit_now,
    own_address,
)
from qtide.mpi.control_line import MESSAGE_BYTES
from qtide.mpi.library import library, progress

SHOWN = 1000
"""How many characters of an overlong exception message are passed on."""
POLL = 0.005
"""Seconds between two checks for the leader's file."""


def call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    rank: int,
    size: int,
    meeting: str,
) -> Any:
    """Call the function as one rank of an MPI task, passing it a communicator of all ranks.

    `meeting` is the file, different for each attempt, in which rank 0 publishes invitations.
    """
    client, raw = _lead(size, Path(meeting)) if rank == 0 else _follow(rank, Path(meeting))
    # mpi4py's own communicator may hold the GIL while it waits
    comm = Communicator(raw, lambda: client.watch(()))
    try:
        result = function(*args, **kwargs, comm=comm)
        comm.barrier()
        raw.Free()
    except Exception as error:
        client.fail(packed(error))
        raise
    finally:
        client.leave()
    return result


class _Leader(ControlServer):
    def lose(self, member: int) -> None:
        super().lose(member)
        if member in self.lost:
            exit_now(1)


def _lead(size: int, meeting: Path) -> tuple[ControlClient, Any]:
    server, others = _Leader(own_address(), progress), range(1, size)
    server.gather(others, lambda invitations: _publish(meeting, "\n".join(invitations)))
    ports = join.open_ports(len(others))
    server.send(list(others), {"join": ports})
    alone = library().MPI.COMM_SELF
    pairs = join.accept(ports, _no_watch)
    comm = join.extend(alone, pairs, _no_watch) if others else alone.Dup()
    join.close_ports(ports)
    meeting.unlink()
    return server, comm


def _follow(rank: int, meeting: Path) -> tuple[ControlClient, Any]:
    last = time.monotonic() + MEET_LIMIT
    while not meeting.exists():
        if time.monotonic() > last:
            raise QtideError(NOT_MET)
        time.sleep(POLL)
    client = MemberClient(meeting.read_text().splitlines()[rank - 1], progress)
    return client, join.connect(client.order()["join"], rank - 1, _no_watch)


def _no_watch() -> None:
    """Do nothing: the loss of another rank ends this process."""


def packed(error: Exception) -> str:
    """An exception as text for the control connection."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # pickling a user's exception may raise anything
        data = pickle.dumps(PhaseError(f"{type(error).__name__}: {error}"))
    text = b64encode(data).decode()
    if len(text) > MESSAGE_BYTES // 2:  # too long for a line of the control connection
        return packed(PhaseError(f"{type(error).__name__}: {str(error)[:SHOWN]}"))
    return text


def _publish(file: Path, text: str) -> None:
    """Write a file atomically, readable only by this user."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(text)
    draft.replace(file)
