"""Grows and shrinks through 3, 1, 2, 3, 1 nodes; its data is checked after every change."""

import sys

import numpy as np

from qtide.malleable import Job

SIZES, CYCLES = (3, 1, 2, 3, 1), int(sys.argv[1])
ROWS = 1001
PAIR = [("number", np.int64), ("half", np.float32)]

with Job(most=3, folder=sys.argv[2]) as job:
    job.begin(step=0)
    plain = job.distributed("plain", (ROWS, 3), fill=lambda rows: rows[:, None] * np.ones(3))
    turns = job.distributed("turns", (ROWS,), np.int64, block=16, fill=lambda rows: rows)
    pairs = job.distributed(
        "pairs", (ROWS,), PAIR, fill=lambda rows: np.array([(n, n / 2) for n in rows], PAIR)
    )
    empty = job.distributed("empty", (2, 2), fill=lambda rows: rows[:, None] * np.ones(2))
    while job.state.step < CYCLES * len(SIZES):
        size = SIZES[job.state.step % len(SIZES)]
        if size >= job.size:
            job.expand(size, least=size, wait=30)
        else:
            job.shrink(size)
        assert job.size == size == job.comm.allreduce(1), (job.size, size)
        assert (plain.local == plain.rows[:, None]).all()
        assert (turns.local == turns.rows).all()
        assert (pairs.local["number"] == pairs.rows).all()
        assert (pairs.local["half"] == pairs.rows / 2).all()
        total = np.zeros(3)
        parts = [each.local.sum() for each in (plain, turns, empty)]
        job.comm.Allreduce(np.array(parts, dtype=float), total)
        assert total.tolist() == [3 * 500500 - 0, 500500, 2], total
        job.state.step += 1
    if job.root:
        print(f"done {job.state.step}")
