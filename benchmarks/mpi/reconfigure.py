"""1 → 3 → 1 nodes, repeatedly; the seconds of each, and until the nodes are idle, as JSON.

Arguments: how often, a folder, and how often again at once, without waiting for idle nodes.
"""

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


ROUNDS, FOLDER, MORE = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])

with Job(most=3, folder=FOLDER) as job:
    expands, shrinks, idles, failures = [], [], [], 0
    for step in job.steps(ROUNDS + MORE):
        began = time.perf_counter()
        failures += 3 - job.expand(3, wait=30)
        total = np.zeros(1)
        job.comm.Allreduce(np.ones(1), total)
        expands.append(time.perf_counter() - began)
        assert total[0] == job.size
        began = time.perf_counter()
        job.shrink(1)
        shrinks.append(time.perf_counter() - began)
        while step < ROUNDS and not idle() and time.perf_counter() - began < 30:
            time.sleep(0.005)
        idles.append(time.perf_counter() - began)
    times = {"expand": expands, "shrink": shrinks, "idle": idles}
    print(
        json.dumps({name: each[:ROUNDS] for name, each in times.items()} | {"failures": failures})
    )
