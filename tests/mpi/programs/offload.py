"""One rank, which is not the root, waits for a QPU; the others work on until it has the answer."""

import sys

import numpy as np

import qtide
from qtide.backends.payloads.payload import Burst
from qtide.malleable import Job

with Job(most=3, folder=sys.argv[1]) as job:
    job.begin()
    job.expand(3, least=3, wait=30)
    steps, answer = 0, None
    if job.rank == 1:
        answer = qtide.qpu().run(Burst(0.5, "of the QPU"))
        for other in (0, 2):
            job.comm.send(answer, other, tag=1)
    else:
        other, received = 2 - job.rank, np.zeros(1)
        while answer is None:
            job.comm.Sendrecv(np.array([float(job.rank)]), other, 2, received, other, 2)
            assert received[0] == other
            steps += 1
            done = np.array([float(job.comm.iprobe(1, 1))])
            job.comm.Sendrecv(done, other, 3, received, other, 3)
            if done[0] and received[0]:
                answer = job.comm.recv(1, 1)
    answers = job.comm.gather((answer, steps))
    if answers is not None:
        print({each for each, _ in answers}, [steps > 10 for _, steps in answers])
