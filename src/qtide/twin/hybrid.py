"""A hybrid job as the twin knows it: its steps by their seconds, played as a program."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from qtide.clusters.pretend import pretend
from qtide.payloads.payload import Burst
from qtide.programs.phase import classical, quantum, task


@dataclass(frozen=True)
class Step:
    """Tasks that run at the same time, by their seconds; or a payload of so many seconds."""

    tasks: tuple[float, ...] = ()
    quantum: float | None = None
    nodes: int = 1
    """How many nodes each of the tasks takes."""


@dataclass(frozen=True)
class HybridJob:
    """A job with its steps, from first to last."""

    steps: tuple[Step, ...]
    submit: float = 0.0
    nodes: int = 1
    """The most nodes that it may hold."""
    seed: int = 0
    user: int = 0
    partition: int = 0
    """The number of the partition that it asks for nodes."""

    @property
    def quantum(self) -> float:
        """Seconds of its quantum phases."""
        return sum(step.quantum or 0.0 for step in self.steps)

    @property
    def shortest(self) -> float:
        """Seconds that it takes if it never waits."""
        return self.quantum + sum(max(step.tasks, default=0.0) for step in self.steps)


async def program(job: HybridJob) -> None:
    """What the strategies drive."""
    for step in job.steps:
        if step.tasks:
            await classical(*(_task(seconds, step.nodes) for seconds in step.tasks))
        else:
            await quantum(Burst(step.quantum, 0))


def _task(seconds: float, nodes: int) -> Any:
    return task(work, seconds) if nodes == 1 else task(shared, seconds).on(nodes)


def work(seconds: float) -> None:
    """A task that takes so long."""
    pretend(seconds)


def shared(seconds: float, rank: int = 0, size: int = 1) -> None:
    """One rank of a task on several nodes."""
    pretend(seconds)


Program = Coroutine[Any, Any, Any]
