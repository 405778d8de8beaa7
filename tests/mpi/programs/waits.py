"""Asks for nodes that do not come, goes on, gives them up, and asks again once there are some."""

import sys

from qtide.malleable import Job

with Job(most=3, folder=sys.argv[1]) as job:
    job.begin(step=0)
    if not job.newcomer:
        assert job.expand(3, wait=0.5) == 1
        assert job.pending
        assert not job.check()
        job.cancel()
        assert not job.pending
        print("went on", flush=True)
        sys.stdin.readline()
    job.expand(2, wait=30)
    assert job.comm.allreduce(1) == 2
    if job.root:
        print(f"done {job.size}")
