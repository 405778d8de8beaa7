"""A rank is killed, and the other calls operations that the first argument names: some for each."""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from qtide.malleable import Job, NodesLost

from mpi4py import MPI  # isort: skip  # as existing programs do; ours comes first

FOLDER = sys.argv[2]
MODE = MPI.MODE_CREATE | MPI.MODE_WRONLY
EACH = 3  # operations for each kill: to start another rank takes most of the time
LARGE = 2**18  # of 8 bytes: no rank can send this to one that is gone

derived: dict[str, Any] = {}
OPERATIONS: dict[str, Callable[[Any, int], Any]] = {
    "Barrier": lambda comm, _: comm.Barrier(),
    "Bcast": lambda comm, dead: comm.Bcast(np.zeros(LARGE), dead),
    "bcast": lambda comm, dead: comm.bcast(None, dead),
    "Allreduce": lambda comm, _: comm.Allreduce(np.ones(9), np.ones(9)),
    "allreduce": lambda comm, _: comm.allreduce(1),
    "alltoall": lambda comm, _: comm.alltoall([1] * comm.size),
    "Alltoallv": lambda comm, _: comm.Alltoall(np.zeros(comm.size), np.zeros(comm.size)),
    "gather": lambda comm, dead: comm.gather(1, dead) or comm.barrier(),
    "scatter": lambda comm, dead: comm.scatter(None, dead),
    "scan": lambda comm, _: comm.scan(1) and comm.barrier(),
    "exscan": lambda comm, _: (comm.exscan(1) and comm.barrier()) or comm.barrier(),
    "Send": lambda comm, dead: comm.Send(np.zeros(LARGE), dead),
    "ssend": lambda comm, dead: comm.ssend(1, dead),
    "Recv": lambda comm, dead: comm.Recv(np.zeros(1), dead),
    "recv": lambda comm, dead: comm.recv(source=dead),
    "Sendrecv": lambda comm, dead: comm.Sendrecv(np.zeros(1), dead, 0, np.zeros(1), dead),
    "sendrecv": lambda comm, dead: comm.sendrecv(1, dead, source=dead),
    "Sendrecv_replace": lambda comm, dead: comm.Sendrecv_replace(np.zeros(1), dead, 0, dead),
    "Probe": lambda comm, dead: comm.Probe(dead),
    "Mprobe": lambda comm, dead: comm.Mprobe(dead),
    "Irecv.Wait": lambda comm, dead: comm.Irecv(np.zeros(1), dead).Wait(),
    "irecv.wait": lambda comm, dead: comm.irecv(source=dead).wait(),
    "Iallreduce.Wait": lambda comm, _: comm.Iallreduce(np.ones(1), np.ones(1)).Wait(),
    "Waitall": lambda comm, dead: MPI.Request.Waitall(
        [comm.Irecv(np.zeros(LARGE), dead), comm.Isend(np.zeros(LARGE), dead)]
    ),
    "waitall": lambda comm, dead: MPI.Request.waitall([comm.irecv(source=dead)]),
    "Waitany": lambda comm, dead: MPI.Request.Waitany([comm.Irecv(np.zeros(1), dead)]),
    "Waitsome": lambda comm, dead: MPI.Request.Waitsome([comm.Irecv(np.zeros(1), dead)]),
    "Recv_init": lambda comm, dead: started(comm.Recv_init(np.zeros(1), dead)).Wait(),
    "Message.probe": lambda comm, dead: MPI.Message.probe(comm, source=dead),
    "Split": lambda comm, _: comm.Split(0),
    "Split_type": lambda comm, _: comm.Split_type(MPI.COMM_TYPE_SHARED),
    "Dup": lambda comm, _: comm.Dup(),
    "Idup": lambda comm, _: comm.Idup()[1].Wait(),
    "Create": lambda comm, _: comm.Create(comm.Get_group()),
    "Create_cart": lambda comm, _: comm.Create_cart([comm.size]),
    "Create_graph": lambda comm, _: comm.Create_graph([0] * comm.size, []),
    "derived": lambda _, __: derived["dup"].Allreduce(np.ones(1), np.ones(1)),
    "halo": lambda _, __: derived["cart"].neighbor_allgather(1),
    "File.Open": lambda comm, _: MPI.File.Open(comm, f"{FOLDER}/new", MPI.MODE_CREATE),
    "File.Write_all": lambda _, __: derived["file"].Write_all(np.zeros(LARGE)),
    "Win.Create": lambda comm, _: MPI.Win.Create(np.zeros(9), comm=comm),
    "Win.Fence": lambda _, __: derived["window"].Fence(),
}


def started(request: Any) -> Any:
    request.Start()
    return request


def check(name: str, comm: Any) -> None:
    """Print whether an operation soon raised that rank 1 is lost."""
    began = time.monotonic()
    try:
        OPERATIONS[name](comm, 1)
        print(f"{name} returned")
    except NodesLost as lost:
        assert lost.ranks == (1,)
        print(f"{name} {'soon' if time.monotonic() - began < 10 else 'late'}", flush=True)


names = sys.argv[1].split(",")
with Job(most=2, folder=FOLDER) as job:
    job.begin(step=0)
    while job.state.step < len(names):
        job.expand(2, least=2, wait=60)
        derived.update(dup=job.comm.Dup(), cart=job.comm.Create_cart([2], [True]))
        derived["file"] = MPI.File.Open(job.comm, f"{FOLDER}/file", MODE)
        derived["file"].Write_at_all(8 * job.rank, np.ones(1))
        derived["window"] = MPI.Win.Create(np.zeros(9), comm=job.comm)
        derived["window"].Fence()
        job.save()
        if job.root:
            job.comm.send("all is saved", 1)  # or the kill could be noticed in save()
        else:
            job.comm.recv(source=0)
            os.kill(os.getpid(), signal.SIGKILL)
        for name in names[job.state.step : job.state.step + EACH]:
            check(name, job.comm)
        job.recover()
        job.state.step += EACH
