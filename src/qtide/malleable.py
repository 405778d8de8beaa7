"""Malleable MPI programs: the number of their nodes changes while they run."""

from qtide.mpi.control import NodesLost
from qtide.mpi.distributed import Distributed
from qtide.mpi.malleable_job import Job

__all__ = ["Distributed", "Job", "NodesLost"]
