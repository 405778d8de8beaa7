"""1 → 3 → 1 nodes, repeatedly; the seconds of each, as JSON."""

import json
import sys
import time

import numpy as np

from qtide.malleable import Job

with Job(most=3, folder=sys.argv[2]) as job:
    job.begin(step=0)
    expands, shrinks = [], []
    while job.state.step < int(sys.argv[1]):
        began = time.perf_counter()
        job.expand(3, least=3, wait=30)
        total = np.zeros(1)
        job.comm.Allreduce(np.ones(1), total)
        expands.append(time.perf_counter() - began)
        assert total[0] == 3
        began = time.perf_counter()
        job.shrink(1)
        shrinks.append(time.perf_counter() - began)
        job.state.step += 1
        time.sleep(0.2)  # the nodes go back meanwhile
    print(json.dumps({"expand": expands, "shrink": shrinks}))
