"""A rank dies while it sends; the others find out in calls that MPI goes on with when they have
been given up. With `late`, one of them begins its calls only when the other has given up its own.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from qtide.malleable import Job, NodesLost

from mpi4py import MPI  # isort: skip  # after qtide.malleable, which begins MPI

LATE, FOLDER = sys.argv[1] == "late", sys.argv[2]
COUNT = 3 * 2**18
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Allreduce": lambda comm, here, there: comm.Allreduce(here, there),
    "Alltoall": lambda comm, here, there: comm.Alltoall(here, recvbuf=there),
    "Allgatherv": lambda comm, here, there: comm.Allgatherv(
        here[: COUNT // 3], [there, MPI.DOUBLE]
    ),
    "Sendrecv": lambda comm, here, there: comm.Sendrecv(
        here, 1 - comm.rank, 0, there, 1 - comm.rank
    ),
    "Waitall": lambda comm, here, there: MPI.Request.Waitall(
        [comm.Isend(here, 1 - comm.rank), comm.Irecv(there, 1 - comm.rank), comm.Irecv(here, 2)]
    ),
}


def die(comm: Any) -> None:
    comm.raw.Isend(np.zeros(COUNT), 0)
    os.kill(os.getpid(), signal.SIGKILL)


def meet_the_dead(comm: Any) -> None:
    """Receive what it was sending, and send to it, before anybody has looked who is lost."""
    raw = comm.raw
    last = time.monotonic() + 0.05
    while time.monotonic() < last:
        raw.Iprobe(2, 1)  # UCX notices it, if it does at all
    if comm.rank == 0:
        pending.append(raw.Irecv(np.zeros(COUNT), 2))
        for _ in range(50):
            raw.Iprobe(2, 1)
    pending.append(raw.isend(None, 2))


pending: list[MPI.Request] = []
with Job(most=3, folder=FOLDER) as job:
    job.begin(done=False)
    while not job.state.done:
        job.expand(3, least=3, wait=60)
        job.state.done = True
        job.save()
        if job.rank == 2:
            for other in (0, 1):
                job.comm.recv(source=other)
            die(job.comm)
        job.comm.send("has saved", 2)
        arrays = {name: (np.ones(COUNT), np.zeros(COUNT)) for name in CALLS}
        if LATE:
            while job.root and not Path(FOLDER, "given up").exists():
                time.sleep(0.01)
        else:
            meet_the_dead(job.comm)
        for name, (here, there) in arrays.items():
            try:
                CALLS[name](job.comm, here, there)
                print(f"{name} returned")
            except NodesLost:
                here[:] = there[:] = -1
        Path(FOLDER, "given up").touch()
        job.recover()
        job.state.done = True
        last = time.monotonic() + 0.2
        while time.monotonic() < last:
            job.comm.Iprobe()
        changed = [name for name in CALLS if not (arrays[name][1] == -1).all()]
        every = job.comm.gather(changed)
        if job.root:
            print(f"{job.size} ranks, changed later: {every}")
