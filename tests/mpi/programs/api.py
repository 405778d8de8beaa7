"""Calls of mpi4py's communicator, in the forms that mpi4py takes, on two ranks."""

import sys
from pathlib import Path

import numpy as np

from qtide.core.errors import UsageError
from qtide.malleable import Job

from mpi4py import MPI  # isort: skip  # as existing programs do; ours comes first

with Job(most=2, folder=sys.argv[1]) as job:
    job.begin(picked=None)
    job.expand(2, least=2, wait=60)
    comm, status = job.comm, MPI.Status()
    other, got = 1 - comm.rank, np.zeros(1)
    assert isinstance(comm, MPI.Intracomm)
    comm.Sendrecv(np.array([7.0 + comm.rank]), other, recvbuf=got, status=status)
    assert (got[0], status.source) == (7.0 + other, other)
    comm.Sendrecv(sendbuf=np.array([1.0]), dest=other, recvbuf=got, source=other)
    assert got[0] == 1.0
    assert comm.sendrecv(sendobj=comm.rank, dest=other) == other
    assert comm.recv(source=MPI.PROC_NULL) is None
    comm.send(obj="one", dest=other, tag=3)
    assert comm.recv(None, other, 3, status) == "one"
    assert (status.source, status.tag) == (other, 3)
    assert comm.bcast(obj=comm.rank, root=1) == 1
    assert comm.reduce(sendobj=comm.rank, op=MPI.MAX, root=1) == (1 if comm.rank else None)
    assert comm.allreduce(comm.rank, MPI.MAX) == 1
    assert comm.scatter(["a", "b"] if job.root else None) == "ab"[comm.rank]
    assert comm.alltoall([(comm.rank, 0), (comm.rank, 1)]) == [(0, comm.rank), (1, comm.rank)]
    assert comm.exscan("x") == ("x" if comm.rank else None)
    requests = [comm.Irecv(got, other, 5), comm.Isend(np.array([3.0]), other, 5)]
    MPI.Request.Waitall(requests)
    assert got[0] == 3.0
    assert all(isinstance(each, MPI.Request) for each in (*requests, MPI.REQUEST_NULL))
    sent = comm.Isend(np.array([9.0 + comm.rank]), other, 6)
    comm.Probe(other, 6)  # MPICH never ends a receive from any source that comes after its message
    comm.Recv(got, tag=6)
    assert got[0] == 9.0 + other
    sent.Wait()
    comm.Sendrecv_replace(got, other)
    assert got[0] == 9.0 + comm.rank
    half = comm.Split(comm.rank)
    assert (half.size, half.allgather("own")) == (1, ["own"])
    assert comm.Create_cart([2], [True]).neighbor_allgather(comm.rank) == [other, other]
    for name in ("Spawn", "Accept", "Create_dist_graph", "Shrink", "irecv"):
        try:
            getattr(comm, name)()
        except UsageError as error:
            assert name in str(error)
        else:
            raise AssertionError(name)
    file = MPI.File.Open(comm, str(Path(sys.argv[1]) / "data"), MPI.MODE_CREATE | MPI.MODE_RDWR)
    file.Write_at_all(comm.rank, bytes([65 + comm.rank]))
    file.Close()
    job.distributed("rows", (9,))
    try:
        job.distributed("rows", (8,))
    except UsageError as error:
        assert "shape (9,), type float64 and block None, not shape (8,)" in str(error)
    job.state.picked = lambda: None  # nobody needs it any more
    if job.root:
        print((Path(sys.argv[1]) / "data").read_text())
