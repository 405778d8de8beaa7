"""Is told by its policy to grow and to shrink; computes on until its node has come."""

import sys
import time
from typing import Any

from qtide.malleable import Job

goals = [2]


def policy(job: Any) -> int:
    return goals[-1]


with Job(most=3, policy=policy, cool_down=0.3, folder=sys.argv[1]) as job:
    job.begin(sizes=[1], alone=0)
    last, grown = time.monotonic() + 30, 0.0
    while job.state.sizes != [1, 2, 1]:
        job.check()
        job.state.alone += job.size == 1
        if job.state.sizes[-1] != job.size:
            job.state.sizes.append(job.size)
            if job.size == 1:
                print(f"kept for the cool-down: {time.monotonic() - grown >= 0.3}")
            grown = time.monotonic()
        if job.size == 2:
            goals.append(1)
        assert time.monotonic() < last
    if job.root:
        print(f"computed on meanwhile: {job.state.alone > 1}")
