"""Grows to three nodes, says so, and computes until it is killed."""

import sys
import time

from qtide.malleable import Job

with Job(most=3, folder=sys.argv[1]) as job:
    job.begin(step=0)
    job.expand(3, least=3, wait=30)
    if job.root:
        print(f"holding {job.size}", flush=True)
    last = time.monotonic() + 60
    while job.comm.bcast(time.monotonic() < last):
        job.comm.barrier()
