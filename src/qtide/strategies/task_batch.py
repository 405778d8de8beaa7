"""Batches: a node runs several short calls as one, so that they share one round trip."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Any, Protocol

from qtide.backends.clusters.cluster import Work
from qtide.core.errors import NodeLost, NodeTaskFailed, noted
from qtide.core.forecasts import Forecast
from qtide.core.job import JobContext
from qtide.core.world.world import World
from qtide.programs.calls import CallResult, run_calls
from qtide.programs.command import CommandTask
from qtide.programs.phase import Task, TaskAttempt, TimeSpent
from qtide.strategies.task_queue import Waiting

WORTHWHILE = 0.05
"""Target duration of a batch in seconds: many times the round trip to a node."""
SHORTEST = 0.005
"""Batches shorter than this, in seconds, are not divided further, even if nodes are idle."""
ROUNDS = 4
"""Minimum number of batches per node, so that all nodes end at about the same time."""
PROBES = 2
"""Calls per node to make one by one first, if their duration is unknown."""
MOST_CALLS = 1000
"""Maximum number of calls per batch."""
OVERDUE = 4
"""A batch that takes so many times its target ends early; other nodes take the rest of it."""


class Named(Protocol):
    """A call of a function."""

    @property
    def name(self) -> str:
        """The function's name."""


class BatchSizes:
    """Chooses batch sizes by the earlier durations of each function's calls."""

    def __init__(self, nodes: int = 1) -> None:
        self.nodes = nodes
        """Number of nodes, or of parts of nodes, that make calls at the same time."""
        self._seconds: dict[str, float] = {}

    def learn(self, name: str, seconds: float) -> None:
        """Record the duration of a call; recent calls weigh most."""
        known = self._seconds.get(name, seconds)
        self._seconds[name] = (known + seconds) / 2

    def known(self, name: str) -> float | None:
        """Usual duration of a function's calls; None if none has ended."""
        return self._seconds.get(name)

    def probes(self, calls: Sequence[Named]) -> int:
        """Return the number of calls to make first to measure their duration."""
        few = len(calls) <= PROBES * ROUNDS * self.nodes
        return 0 if few or calls[-1].name in self._seconds else PROBES * self.nodes

    def size(self, calls: Sequence[Named]) -> int:
        """Return the number of calls per batch."""
        longest = max(self._seconds.get(name, WORTHWHILE) for name in {each.name for each in calls})
        return self.number(len(calls), longest)

    def number(self, calls: int, seconds: float, shortest: float = SHORTEST) -> int:
        """How many of so many calls to put into a batch: batches are neither short nor few."""
        fair = ceil(calls / (ROUNDS * self.nodes))
        least, most = (int(each / max(seconds, 1e-6)) for each in (shortest, WORTHWHILE))
        return max(1, min(MOST_CALLS, max(fair, least), most))


@dataclass(frozen=True, eq=False)
class TaskBatch(Task[Any]):
    """Tasks that one process on a node runs one after the other; each has its own outcome."""

    tasks: Sequence[Task[Any]] = ()

    @staticmethod
    def of(tasks: Sequence[Task[Any]], attempts: Iterable[TaskAttempt]) -> TaskBatch:
        """Create a batch; each task has an attempt of its own."""
        pairs = zip(tasks, attempts, strict=True)
        calls = [(task.function, task.args, task.keywords(each)) for task, each in pairs]
        return TaskBatch(run_calls, (None, calls, OVERDUE * WORTHWHILE), tasks=tasks)

    @property
    def name(self) -> str:
        """The name of its first task."""
        return self.tasks[0].name

    def spent(self, result: list[CallResult]) -> list[TimeSpent]:
        """The seconds of each task that has ended."""
        return [(task.name, each.seconds) for task, each in zip(self.tasks, result, strict=False)]


class BatchFailed(NodeLost):
    """A batch has no results; each of its tasks runs again by itself, as one of them is why."""


class TaskBatches:
    """Runs waiting tasks in batches, by how long such tasks took before."""

    def __init__(self, world: World, job: JobContext, forecast: Forecast) -> None:
        self._job = job
        self._counted = world.counted
        self._durations = forecast.tasks
        self._sizes = BatchSizes()

    def learn(self, task: Task[Any], seconds: float) -> None:
        """Record how long a task took, in seconds of the world's clock."""
        self._sizes.learn(task.name, seconds / self._counted(1.0))

    def joined(self, first: Waiting, queue: Collection[Waiting], parts: int) -> list[Waiting]:
        """The tasks of a queue that are to run with `first`, where `parts` can run at once."""
        seconds = self._expected(first)
        if seconds is None:
            return []
        self._sizes.nodes = parts
        # programs of one name may take very different times: none waits while a part is free
        shortest = 0.0 if isinstance(first.task, CommandTask) else SHORTEST
        most = self._sizes.number(len(queue) + 1, seconds, shortest)
        left, chosen = WORTHWHILE - seconds, []
        for each in islice(queue, most - 1):
            expected = self._expected(each)
            left -= WORTHWHILE if expected is None else expected
            if left < 0:
                break
            chosen.append(each)
        return chosen

    async def run(self, first: Waiting, key: str) -> Any:
        """Run a task and its batch, one after the other; return the first one's result.

        The others get theirs, unless the batch takes too long to come to them. If it fails as a
        whole, each runs again, by itself.
        """
        ((node, part),) = first.granted.result()
        everybody = (first, *first.batch)
        works = [Work(self._job, each.task, f"{key}/{each.place[1]}") for each in everybody]
        batch = TaskBatch.of([each.task for each in everybody], works)
        for each in everybody:
            self._durations.begin(each.place)
        name = f"{key}/{first.place[1]} and {len(first.batch)} more"
        try:
            results = await node.run(Work(self._job, batch, name, slot=part))
        except Exception as error:
            for each in first.batch:
                each.end(None, BatchFailed(str(error)))
            raise BatchFailed(str(error)) from error
        own, *others = [
            self._outcome(each, result, node.name)
            for each, result in zip(everybody, results, strict=False)
        ]
        for each, outcome in zip(first.batch, others, strict=False):
            each.end(*outcome)
        result, failure = own
        if failure is not None:
            raise failure
        return result

    def _expected(self, waiting: Waiting) -> float | None:
        """Real seconds that a task should take; None if it is unknown, or may not join."""
        if not waiting.joins:
            return None
        known = self._durations.known(waiting.place)
        return self._sizes.known(waiting.task.name) if known is None else known / self._counted(1.0)

    def _outcome(
        self, waiting: Waiting, result: CallResult, node: str
    ) -> tuple[Any, Exception | None]:
        """The result of one task of a batch, or its exception."""
        task, seconds = waiting.task, self._counted(result.seconds)
        self.learn(task, seconds)
        self._durations.record(waiting.place, seconds)
        if result.error:
            failure = result.exception or NodeTaskFailed(result.error)
            return None, noted(failure, task.name, node, result.lines)
        try:
            return result.value, None
        except Exception as unreadable:
            return None, unreadable
