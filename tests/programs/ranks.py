"""An MPI program for the tests of commands: prints the sum of its ranks.

With `lose FILE`, the first start of rank 1 kills the agent of its node; with `sleep`, it sleeps.
"""

import os
import signal
import sys
import time
from pathlib import Path

from mpi4py import MPI


def agent() -> int:
    """The process that runs tasks on this node, an ancestor of this one."""
    pid = os.getpid()
    while b"clusters.agent" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank)
what, *more = sys.argv[1:] or ["sum"]
if what == "lose" and comm.rank == 1:
    marks = Path(more[0])
    with marks.open("a") as opened:
        opened.write("started\n")
    if len(marks.read_text().splitlines()) == 1:
        os.kill(agent(), signal.SIGKILL)
if what == "sleep":
    Path(more[0]).touch()
    time.sleep(60)
comm.barrier()
if comm.rank == 0:
    print(f"{total} of {comm.size}")
