"""Is started as several processes by a launcher, and changes to the sizes of its arguments."""

import sys

from qtide.malleable import Job

from mpi4py import MPI  # isort: skip  # as existing programs do; ours comes first

*SIZES, FOLDER = sys.argv[1:]

with Job(most=3, folder=FOLDER) as job:
    job.begin(step=0, sizes=[])
    data = job.distributed("data", (100,), fill=lambda rows: rows)
    while job.state.step < len(SIZES):
        size = int(SIZES[job.state.step])
        job.expand(size, least=size, wait=30) if size >= job.size else job.shrink(size)
        assert job.comm.allreduce(data.local.sum(), MPI.SUM) == 4950
        job.state.sizes.append(job.size)
        job.state.step += 1
    if job.root:
        print("sizes", *job.state.sizes)
