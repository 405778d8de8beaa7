"""1 → 3 → 1 nodes, repeatedly; the seconds of each, and until the nodes are idle, as JSON."""

import json
import subprocess
import sys
import time

import numpy as np

from qtide.malleable import Job


def idle() -> bool:
    """Whether Slurm has all three nodes again."""
    words = ["sinfo", "--noheader", "--Node", "--partition=compute", "--format=%T"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    return listed.stdout.split() == ["idle"] * 3


with Job(most=3, folder=sys.argv[2]) as job:
    job.begin(step=0)
    expands, shrinks, idles = [], [], []
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
        while not idle() and time.perf_counter() - began < 30:
            time.sleep(0.005)
        idles.append(time.perf_counter() - began)
        job.state.step += 1
    print(json.dumps({"expand": expands, "shrink": shrinks, "idle": idles}))
