"""Solve Poisson's equation on a grid by conjugate gradients, on a number of nodes that changes.

python examples/mpi/conjugate_gradient.py          # on 1, 3, 2 and 1 nodes in turns
python examples/mpi/conjugate_gradient.py 1        # the same on one node
"""

import sys
from typing import Any

import numpy as np

from qtide.malleable import Distributed, Job

GRID = 100
SIZES = [int(word) for word in sys.argv[1:]] or [1, 3, 2, 1]
EVERY = 20  # iterations


def laplace(job: Job, field: Distributed) -> Any:
    """Four times each point minus its neighbours; those of other ranks are fetched."""
    local = field.local
    above, below = np.zeros(GRID), np.zeros(GRID)
    if len(local):
        up, down = job.rank - 1, job.rank + 1
        last = field.first + len(local) == GRID
        if job.rank > 0:
            job.comm.Sendrecv(local[0].copy(), up, 0, above, up, 1)
        if not last:
            job.comm.Sendrecv(local[-1].copy(), down, 1, below, down, 0)
    tall = np.vstack([above, local, below])
    wide = np.pad(local, ((0, 0), (1, 1)))
    return 4 * local - tall[:-2] - tall[2:] - wide[:, :-2] - wide[:, 2:]


def dot(job: Job, one: Any, other: Any) -> float:
    """Over all ranks."""
    total = np.zeros(1)
    job.comm.Allreduce(np.array([np.vdot(one, other)]), total)
    return float(total[0])


with Job(most=max(SIZES)) as job:
    state = job.begin(step=0, residual=1.0)
    x = job.distributed("x", (GRID, GRID))
    r = job.distributed("r", (GRID, GRID), fill=lambda rows: np.ones((len(rows), GRID)))
    p = job.distributed("p", (GRID, GRID), fill=lambda rows: np.ones((len(rows), GRID)))
    while state.residual > 1e-8:
        size = SIZES[state.step // EVERY % len(SIZES)]
        if size >= job.size:
            job.expand(size, wait=30)
        else:
            job.shrink(size)
        product = laplace(job, p)
        before = dot(job, r.local, r.local)
        alpha = before / dot(job, p.local, product)
        x.local += alpha * p.local
        r.local -= alpha * product
        after = dot(job, r.local, r.local)
        p.local[...] = r.local + after / before * p.local
        state.residual = after**0.5
        state.step += 1
    middle = dot(job, x.local, x.local) ** 0.5
    if job.root:
        print(f"{state.step} iterations, |x| = {middle:.10g}")
