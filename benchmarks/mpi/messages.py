"""Operations of a job's communicator and of mpi4py's own, for messages of many sizes, as JSON.

The result has, for every operation and size in bytes, the best seconds of both; and the share of a
core that a rank used while it waited for another one for a second.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from qtide.malleable import Job

SIZES = (64, 4096, 65536, 2**20, 2**23, 2**25, 2**26)
ROUNDS = 7


def sendrecv(comm: Any, out: Any, into: Any) -> None:
    """Exchange data with the other rank."""
    other = 1 - comm.rank
    comm.Sendrecv(out, other, 0, into, other, 0)


def bcast(comm: Any, out: Any, _: Any) -> None:
    """Send data to all ranks."""
    comm.Bcast(out, 0)


def allreduce(comm: Any, out: Any, into: Any) -> None:
    """Sum data of all ranks."""
    comm.Allreduce(out, into)


def seconds(comm: Any, operation: Callable[[Any, Any, Any], None], size: int) -> float:
    """Seconds of one operation, from the moment at which both ranks begin."""
    out, into = np.ones(size // 8), np.empty(size // 8)
    times = max(1, min(1000, 2**22 // size))
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(times):
        operation(comm, out, into)
    comm.Barrier()
    return (time.perf_counter() - began) / times


def waiting(job: Job) -> float:
    """The share of a core that the root uses while it waits for a second."""
    job.comm.Barrier()
    if not job.root:
        time.sleep(1)
    began, used = time.perf_counter(), time.process_time()
    job.comm.Barrier()
    return (time.process_time() - used) / (time.perf_counter() - began)


with Job(most=2, folder=sys.argv[1]) as job:
    job.begin()
    job.expand(2, least=2, wait=60)
    ways = {"own": job.comm, "raw": job.comm.raw}
    found: dict[str, dict[str, float]] = {}
    for operation in (sendrecv, bcast, allreduce):
        for size in SIZES:
            taken: dict[str, list[float]] = {name: [] for name in ways}
            for turn in range(ROUNDS):  # each is first in every other turn
                for name in sorted(ways, reverse=turn % 2 == 0):
                    taken[name].append(seconds(ways[name], operation, size))
            best = {name: min(each) for name, each in taken.items()}
            found[f"{operation.__name__} {size}"] = best
    share = waiting(job)
    if job.root:
        print(json.dumps({"operations": found, "waiting": share}))
