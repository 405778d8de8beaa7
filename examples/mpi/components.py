"""The classical and the quantum component of a heterogeneous job: a client and its server.

Each is an MPI world of its own; Connect and Accept join their roots. The quantum one ends after the
last answer, and is given back, while the classical one computes on. See components.sh.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dimod
import numpy as np
from dwave.samplers import SimulatedAnnealingSampler

from qtide.malleable import Job

from mpi4py import MPI  # isort: skip  # only once qtide has told it not to begin MPI by itself

LIMIT = 60.0  # seconds of every wait
ROUNDS, SPINS = 3, 30
AFTER = 5  # steps after the QPU was given back

component, meeting = sys.argv[1], Path(sys.argv[2])


def until(true: Callable[[], Any]) -> None:
    """Look until something is true; the other component may be gone, so not forever."""
    last = time.monotonic() + LIMIT
    while not true():
        if time.monotonic() > last:
            raise TimeoutError(f"the other component did not answer within {LIMIT:g} s")
        time.sleep(0.001)


def quantum() -> None:
    """Answer problems until there are no more."""
    port = MPI.Open_port()
    (meeting / "port.new").write_text(port)
    (meeting / "port.new").rename(meeting / "port")
    both = MPI.COMM_SELF.Accept(port, MPI.Info.Create({"timeout": str(int(LIMIT))}))
    for _ in range(ROUNDS):
        couplings = np.empty((SPINS, SPINS))
        until(both.Irecv(couplings, 0).Test)
        model = dimod.BinaryQuadraticModel(couplings, "SPIN")
        first = SimulatedAnnealingSampler().sample(model, num_reads=10, seed=0).first
        answer = np.array([first.sample[spin] for spin in range(SPINS)], dtype=float)
        until(both.Isend(answer, 0).Test)
    both.Disconnect()


def classical(job: Job) -> None:
    """Ask for spins of low energy, and work on while the QPU finds them."""
    if job.root:
        until((meeting / "port").exists)
        both = MPI.COMM_SELF.Connect((meeting / "port").read_text())
    for number in range(ROUNDS):
        couplings = np.triu(np.random.default_rng(number).normal(size=(SPINS, SPINS)), 1)
        spins = np.empty(SPINS)
        if job.root:
            requests = [both.Isend(couplings, 0), both.Irecv(spins, 0)]
        steps = 1
        while not worked(job, job.root and MPI.Request.Testall(requests)):
            steps += 1
        if job.root:
            energy = spins @ couplings @ spins
            print(f"round {number + 1}: energy {energy:.3f}; {steps} steps meanwhile", flush=True)
    if job.root:
        both.Disconnect()


def worked(job: Job, enough: bool) -> bool:
    """One step of all ranks; whether the root says that it is enough."""
    job.comm.allreduce(np.random.default_rng(job.rank).normal(size=(SPINS, SPINS)).sum())
    return bool(job.comm.bcast(enough))


def finish(job: Job) -> None:
    """What is left to do needs no QPU."""
    released, after, last = meeting / "released", 0, time.monotonic() + LIMIT
    while after < AFTER:
        after += worked(job, released.exists() or time.monotonic() > last)
    if job.root:
        print(f"{after} steps after the QPU was given back", flush=True)


with Job(most=2, name=component, folder=meeting) as job:
    if component == "quantum":
        quantum()
    else:
        classical(job)
        finish(job)
