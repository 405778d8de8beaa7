"""The rows of an array from two ranks to three, by a job and by a plain Alltoallv, as JSON."""

import json
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from qtide.malleable import Job
from qtide.mpi.communicator import Communicator
from qtide.mpi.distributed import Array, BlockLayout, move, share
from qtide.mpi.library import library

ROWS, WIDTH = int(sys.argv[1]), 1024  # of 8 bytes: 8 kB a row
TURNS = 6


def own(comm: Communicator, layout: BlockLayout, local: Array) -> Array:
    """As a job does it."""
    return move(comm, layout, local, 2, 3)


def plain(comm: Communicator, layout: BlockLayout, local: Array) -> Array:
    """The collective alone."""
    received = np.empty((layout.count(comm.rank, 3), WIDTH))
    parts = [share(layout, comm.rank, *sizes, 3).counts * WIDTH for sizes in ((2, 3), (3, 2))]
    places = [(counts, np.cumsum(counts) - counts) for counts in parts]
    double = library().MPI.DOUBLE
    comm.raw.Alltoallv([local, places[0], double], [received, places[1], double])
    return received


def seconds(comm: Communicator, way: Callable[[], Array]) -> float:
    """From the moment at which all begin until all have their rows."""
    comm.barrier()
    began = time.perf_counter()
    result = way()  # it is kept until the end: giving memory back takes time, too
    comm.barrier()
    took = time.perf_counter() - began
    del result
    return took


with Job(most=3, folder=sys.argv[2]) as job:
    job.begin()
    job.expand(3, least=3, wait=30)
    comm, layout = job.comm, BlockLayout(ROWS)
    local = np.ones((layout.count(job.rank, 2), WIDTH))
    times: dict[str, list[float]] = {"own": [], "plain": []}
    for turn in range(TURNS):  # each is first in every other turn: the second finds warm memory
        for way in (own, plain) if turn % 2 else (plain, own):
            times[way.__name__].append(seconds(comm, partial(way, comm, layout, local)))
    if job.root:
        print(json.dumps(times))
