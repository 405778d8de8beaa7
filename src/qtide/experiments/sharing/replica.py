"""One replica: the colouring as a job that uses the service, phase by phase.

Its classical tasks run where it runs: on graphs of ten vertices they take milliseconds, and what
makes them long is a sleep. So sixteen replicas fit on two cores without disturbing each other.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qtide import Target, quantum
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.independent import some_maximal_sets
from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import QtideError
from qtide.experiments.sharing.sharing_plan import SharingPlan
from qtide.programs.phase import Classical, Quantum, Task, Together
from qtide.programs.program import load

ROUNDS = 3
"""Of the optimiser, which evaluates two points in each, and the best one at the end."""


async def circuits(graph: Graph, seed: int, target: Target | None = None) -> list[frozenset[int]]:
    """QAOA in circuits that are cut to fit five qubits, with few rounds of its optimiser."""
    from qtide.apps.colouring.cutting.cut_step import CutOptions, cut_circuits_step

    options = CutOptions(optimiser="spsa", rounds=ROUNDS)
    return await cut_circuits_step(graph, seed, options, target)


async def bursts(graph: Graph, seed: int) -> list[frozenset[int]]:
    """As many payloads that are only durations; the sets are enumerated."""
    for _ in range(2 * ROUNDS + 1):
        await quantum(Burst())
    return some_maximal_sets(graph, 1)


DEVICE = "qpu"
"""What the device is called at the service."""
HOLD = 30.0
"""Seconds that the service holds the answer back until it is there."""
LIMIT = 3600.0
"""Seconds within which a task has to be done."""


@dataclass
class ReplicaRecord:
    """What one job has measured; times in seconds since 1970."""

    start: float = 0.0
    end: float = 0.0
    tasks: int = 0
    quantum: float = 0.0
    """Seconds on the device."""
    queue: float = 0.0
    """Seconds in its queue."""
    colours: int = 0

    @property
    def runtime(self) -> float:
        """How long the job took."""
        return self.end - self.start

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


@dataclass
class Replica:
    """A job that drives the program's coroutine by itself."""

    client: Client
    plan: SharingPlan
    alpha: float
    folder: Path
    """Where the colouring is written."""
    record: ReplicaRecord = field(default_factory=ReplicaRecord)

    def run(self) -> ReplicaRecord:
        """Colour the graph."""
        words = {"clustered": list(self.plan.clustered), "sets": self.plan.sets}
        options = {"greedy": False, "width": 1, "picture": False}
        job = load("colouring").prepare(
            [], words | options, seed=self.plan.seed, folder=self.folder
        )
        self.record.start = time.time()
        found = self._drive(job)
        self.record.end = time.time()
        self.record.colours = found["colours"]
        return self.record

    def _drive(self, job: Coroutine[Any, Any, Any]) -> Any:
        value: Any = None
        while True:
            try:
                awaited = job.send(value)
            except StopIteration as end:
                return end.value
            value = self._perform(awaited)

    def _perform(self, awaited: Any) -> Any:
        match awaited:
            case Task():
                return awaited.function(*awaited.args, **awaited.kwargs)
            case Classical(tasks):
                return [self._perform(each) for each in tasks]
            case Together(parts):
                return [self._perform(each) for each in parts]
            case Quantum():
                return self._on_the_device(awaited)
            case Coroutine():
                return self._drive(awaited)
        raise QtideError(f"the program awaits {awaited!r}, which is no phase")

    def _on_the_device(self, phase: Quantum) -> Any:
        """The answer, then the classical time that the experiment adds."""
        shots, seed = self.plan.shots, self.plan.seed + self.record.tasks
        task = self.client.submit(phase.payload, DEVICE, shots=shots, seed=seed, wait=HOLD)
        answer = task.result(LIMIT)
        said = task.response
        self.record.tasks += 1
        self.record.quantum += said["qpu_seconds"]
        self.record.queue += said["started"] - said["submitted"]
        time.sleep(self.alpha * said["qpu_seconds"])
        return answer
