"""Two processes that srun started, which have to find each other."""

import sys

from qtide.malleable import Job

with Job(most=2, folder=sys.argv[1]) as job:
    assert job.comm.allreduce(1) == 2
