"""Malleable MPI programs: the number of their nodes changes while they run."""

from qtide.malleable.distributed import Distributed
from qtide.malleable.job import Job
from qtide.mpi.lost import NodesLost

__all__ = ["Distributed", "Job", "NodesLost"]
