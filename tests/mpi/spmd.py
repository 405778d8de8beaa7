"""A program with an MPI task: the sum of all ranks, a failure, and a rank that is lost once."""

import os
import signal
from pathlib import Path
from typing import Any

from mpi4py import MPI

from qtide import program, task


def total(scale: int, comm: Any = None) -> int:
    return int(comm.allreduce(scale * (comm.Get_rank() + 1), op=MPI.SUM))


def fails(comm: Any = None) -> None:
    if comm.Get_rank() == 1:
        raise ValueError("rank 1 does not like this")
    comm.Barrier()


def lost_once(mark: str, comm: Any = None) -> int:
    if comm.Get_rank() == 1 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return int(comm.allreduce(1))


@program
async def spmd(mark: str, nodes: int = 2) -> list[Any]:
    alone = await task(total, 10).on(1, mpi=True)
    results = await task(total, 10).on(nodes, mpi=True)
    again = await task(lost_once, mark).on(nodes, mpi=True)
    try:
        await task(fails).on(nodes, mpi=True)
    except ValueError as error:
        return [alone, results, again, str(error)]
    return []
