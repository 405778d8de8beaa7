"""The rows of an array from two ranks to three, by a job and by a plain Alltoallv, as JSON."""

import json
import sys
import time

import numpy as np

from qtide.malleable import Job
from qtide.malleable.layout import Layout
from qtide.malleable.move import moved, share
from qtide.mpi.library import library

ROWS, WIDTH = int(sys.argv[1]), 1024  # of 8 bytes: 8 kB a row

with Job(most=3, folder=sys.argv[2]) as job:
    job.begin()
    job.expand(3, least=3, wait=30)
    comm, layout = job.comm, Layout(ROWS)
    local = np.ones((layout.count(job.rank, 2), WIDTH))
    times: dict[str, list[float]] = {"own": [], "plain": []}
    for _ in range(6):  # the first one of each connects the ranks, and does not count
        comm.barrier()
        began = time.perf_counter()
        moved(comm, layout, local, 2, 3)
        comm.barrier()
        times["own"].append(time.perf_counter() - began)
        began = time.perf_counter()
        received = np.empty((layout.count(job.rank, 3), WIDTH))
        parts = [share(layout, job.rank, *sizes, 3).counts * WIDTH for sizes in ((2, 3), (3, 2))]
        places = [(counts, np.cumsum(counts) - counts) for counts in parts]
        double = library().MPI.DOUBLE
        comm.raw.Alltoallv([local, places[0], double], [received, places[1], double])
        comm.barrier()
        times["plain"].append(time.perf_counter() - began)
    if job.root:
        print(json.dumps({name: seconds[1:] for name, seconds in times.items()}))
