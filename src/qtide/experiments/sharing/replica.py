"""One replica: a colouring job that sends its quantum phases to the service.

Its classical tasks run in place: on graphs of ten vertices they take milliseconds, and a sleep
makes the phases long. So sixteen replicas fit on two cores without disturbing each other.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qtide import Target, quantum
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.independent import some_maximal_sets
from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import NullValues
from qtide.core.world.virtual import VirtualWorld
from qtide.experiments.sharing.sharing_plan import SharingPlan
from qtide.programs.journal import NullJournal
from qtide.programs.phase import Classical, Phase, Quantum, Task
from qtide.programs.program import load
from qtide.programs.replay import CandidateChoice, Replay

DEVICE = "qpu"
"""Name of the device at the service."""
HOLD = 30.0
"""Seconds for which the service may hold a request while it waits for the answer."""
LIMIT = 3600.0
"""Seconds within which a task must finish."""


@dataclass
class ReplicaRecord:
    """Measurements of one job; `start` and `end` are in seconds since 1970."""

    start: float = 0.0
    end: float = 0.0
    tasks: int = 0
    quantum: float = 0.0
    """Seconds on the device."""
    queue: float = 0.0
    """Seconds in the device's queue."""
    colours: int = 0

    @property
    def runtime(self) -> float:
        """Seconds that the job took."""
        return self.end - self.start

    def as_dict(self) -> dict[str, Any]:
        """Return the record in a form that JSON can represent."""
        return asdict(self)


@dataclass
class Replica:
    """A job that performs its own phases: it calls tasks and sends payloads to the service."""

    client: Client
    plan: SharingPlan
    alpha: float
    folder: Path
    """Folder for the colouring."""
    record: ReplicaRecord = field(default_factory=ReplicaRecord)

    def run(self) -> ReplicaRecord:
        """Colour the graph and return the record."""
        arguments = {
            "clustered": list(self.plan.clustered),
            "sets": self.plan.sets,
            "greedy": False,
            "width": 1,
            "picture": False,
        }
        seed = self.plan.seed
        program = load("colouring").prepare([], arguments, seed=seed, folder=self.folder)
        # Phases block until they are done, so no virtual time passes: this world only drives.
        world = VirtualWorld()
        journal: Any = NullJournal()
        job = JobContext("replica", Ledger("replica", time.time), NullValues(), seed)
        self.record.start = time.time()
        found = world.run(Replay(world, self, journal, job).play(program))
        self.record.end = time.time()
        self.record.colours = found["colours"]
        return self.record

    async def perform(self, phase: Phase, key: str) -> Any:
        """Perform a phase; after a payload, sleep for the experiment's classical time."""
        if isinstance(phase, Classical):
            return [task.function(*task.args, **task.kwargs) for task in phase.tasks]
        seed = self.plan.seed + self.record.tasks
        task = self.client.submit(
            phase.payload, DEVICE, shots=self.plan.shots, seed=seed, wait=HOLD
        )
        answer = task.result(LIMIT)
        said = task.response
        self.record.tasks += 1
        self.record.quantum += said["qpu_seconds"]
        self.record.queue += said["started"] - said["submitted"]
        time.sleep(self.alpha * said["qpu_seconds"])
        return answer

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        """Always choose the device, which is what the experiment measures."""
        return CandidateChoice("qpu", "the experiment measures the device")


ROUNDS = 3
"""Rounds of the optimiser: two evaluations each, and one of the best point at the end."""


async def circuits(graph: Graph, seed: int, target: Target | None = None) -> list[frozenset[int]]:
    """Find sets by QAOA circuits cut to fit five qubits, with few optimiser rounds."""
    # Imported late: qiskit takes a second to load, and only this step needs it.
    from qtide.apps.colouring.cutting.cut_step import CutOptions, cut_circuits_step

    options = CutOptions(optimiser="spsa", rounds=ROUNDS)
    return await cut_circuits_step(graph, seed, options, target)


async def bursts(graph: Graph, seed: int) -> list[frozenset[int]]:
    """Send as many payloads that only take time; enumerate the independent sets instead."""
    for _ in range(2 * ROUNDS + 1):
        await quantum(Burst())
    return some_maximal_sets(graph, 1)
