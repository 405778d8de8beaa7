"""Is killed after its third step, and then started again."""

import os
import signal
import sys

import numpy as np

from qtide.malleable import Job

with Job(most=2, folder=sys.argv[-1]) as job:
    job.begin(step=0)
    data = job.distributed("data", (100,), fill=lambda rows: rows)
    first, total = job.state.step, np.zeros(1)
    while job.state.step < 3:
        job.expand(2, least=2, wait=60)
        job.state.step += 1
        if sys.argv[1] == "dies" and first == 0 and job.state.step == 3:
            job.save()
            if job.root:
                print("saved", job.state.step, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
    job.comm.Allreduce(np.array([data.local.sum()]), total)
    if job.root:
        print(f"began with {first}, {total[0]:.0f}")
