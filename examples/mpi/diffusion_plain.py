"""Heat that spreads in a plate: a plain mpi4py program, beside which diffusion.py is its port.

mpiexec -n 3 python examples/mpi/diffusion_plain.py
"""

import numpy as np
from mpi4py import MPI

SIDE, STEPS = 120, 300

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
first, last = SIDE * rank // size, SIDE * (rank + 1) // size
plate = np.zeros((last - first, SIDE))
plate[:, :3] = 100.0

for step in range(STEPS):
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

total = comm.allreduce(plate.sum())
if rank == 0:
    print(f"total {total:.6f}")
