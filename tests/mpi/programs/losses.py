"""Loses nodes at a moment that its first argument names, and goes on without them."""

import os
import signal
import sys
import time

import numpy as np

import qtide.mpi.join
from qtide.malleable import Distributed, Job, NodesLost
from qtide.mpi.library import library
from qtide.mpi.membership import Membership

MOMENT, FOLDER = sys.argv[1:3]


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_connected(ports: list[str], place: int, _: object) -> None:
    """Die while the root merges the two of them."""
    library().MPI.COMM_SELF.Connect(ports[place])
    die()


def doomed() -> bool:
    """One newcomer of the first growth: later ones live."""
    words = os.environ.get("QTIDE_JOIN", "").split()
    return bool(words) and words[2] == "2"


if doomed() and MOMENT == "connect":
    qtide.mpi.join.connect = die  # type: ignore[assignment]
if doomed() and MOMENT == "connected":
    qtide.mpi.join.connect = die_connected  # type: ignore[assignment]
if doomed() and MOMENT == "merge":
    Membership.restore = die  # type: ignore[method-assign,assignment]
if doomed() and MOMENT == "redistribution":
    Distributed.move = die  # type: ignore[method-assign,assignment]
IS_DOOMED = doomed()

with Job(most=3, folder=FOLDER) as job:
    job.begin(step=0, losses=0)
    data = job.distributed("data", (1000,), fill=lambda rows: rows)
    if job.root and not job.newcomer:
        job.save()
    losses, told = 0, 0.0
    for step in job.steps(6):
        try:
            job.expand(3, wait=30)
            if step == 2 and job.size == 3:
                job.save()
            if MOMENT == "collective" and IS_DOOMED and step == 3:
                die()
            began = time.monotonic()
            total = np.zeros(1)
            job.comm.Allreduce(np.array([data.local.sum()]), total)
            assert total[0] == 499500, total
        except NodesLost as lost:
            noticed = time.monotonic() - began
            assert lost.ranks == (2,), lost.ranks
            job.recover()
            assert job.size == 2
            assert job.state.step == 2
            losses += 1
            if job.root:
                print(f"lost within {noticed:.3f}")
    total = np.zeros(1)
    job.comm.Allreduce(np.array([data.local.sum()]), total)
    if job.root:
        print(f"done {job.size} {total[0]:.0f} losses {losses}")
