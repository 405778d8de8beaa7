"""Heat that spreads in a plate, on a number of nodes that changes: the port of diffusion_plain.py.

python examples/mpi/diffusion.py
"""

import numpy as np

from qtide.malleable import Job

from mpi4py import MPI  # isort: skip  # after qtide.malleable, which begins MPI

SIDE, STEPS = 120, 300

with Job(most=3) as job:
    comm = job.comm
    field = job.distributed("plate", (SIDE, SIDE))
    if not job.newcomer:
        field.local[:, :3] = 100.0

    for step in job.steps(STEPS):
        job.expand() if step % 100 < 50 else job.minimise()
        plate, rank, size = field.local, comm.Get_rank(), comm.Get_size()
        up = rank - 1 if rank > 0 else MPI.PROC_NULL
        down = rank + 1 if rank < size - 1 else MPI.PROC_NULL
        above, below = plate[0].copy(), plate[-1].copy()
        requests = [comm.Irecv(above, up), comm.Irecv(below, down)]
        requests += [comm.Isend(plate[0].copy(), up), comm.Isend(plate[-1].copy(), down)]
        MPI.Request.Waitall(requests)
        tall = np.vstack([above, plate, below])
        plate[:, 1:-1] += 0.2 * (
            tall[:-2, 1:-1] + tall[2:, 1:-1] + plate[:, :-2] + plate[:, 2:] - 4 * plate[:, 1:-1]
        )
        hottest = comm.allreduce(plate[:, 3:].max(), MPI.MAX)
        if rank == 0 and step % 100 == 99:
            print(f"step {step + 1}: hottest {hottest:.6f}")

    total = comm.allreduce(field.local.sum())
    if comm.Get_rank() == 0:
        print(f"total {total:.6f}")
