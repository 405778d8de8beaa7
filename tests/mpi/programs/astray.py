"""Its newcomers do not come to the line at which the others wait for them."""

import sys

from qtide.malleable import Job

with Job(most=2, folder=sys.argv[1]) as job:
    job.begin()
    if job.newcomer:
        job.comm.barrier()
    job.expand(2, wait=30)
    job.comm.barrier()
