"""Where replicas run: in threads of this process, or as jobs of a real Slurm, with a licence each.

Both start together: every replica has loaded what it needs before the first one begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from threading import Barrier, Thread
from typing import TypeVar

from qtide.client.client import Client
from qtide.experiments.sharing.plan import Plan, Point
from qtide.experiments.sharing.replica import DEVICE, LIMIT, Record, Replica
from qtide.testing.service import LocalService

T = TypeVar("T")

READY_LIMIT = 300.0
"""Seconds within which all replicas have to be ready."""


class Jobs(ABC):
    """Runs the replicas of one point after the other."""

    @abstractmethod
    def run(self, point: Point) -> list[Record]:
        """What each replica has measured."""


class LocalJobs(Jobs):
    """Threads: a replica mostly waits, for the service or in a sleep, and needs no process."""

    def __init__(self, plan: Plan, client: Callable[[int], Client], folder: Path) -> None:
        self._plan = plan
        self._clients = [client(number) for number in range(max(1, *plan.replicas))]
        self._folder = folder
        self._one(0, 0.0, Barrier(1))  # loads all libraries, here and at the service

    def run(self, point: Point) -> list[Record]:
        """All replicas at once; the first failure is raised."""
        together = Barrier(point.replicas)
        return at_once(
            [partial(self._one, number, point.alpha, together) for number in range(point.replicas)]
        )

    def _one(self, number: int, alpha: float, together: Barrier) -> Record:
        folder = self._folder / f"replica-{number}"
        folder.mkdir(exist_ok=True)
        replica = Replica(self._clients[number], self._plan, alpha, folder)
        together.wait(READY_LIMIT)
        return replica.run()


def at_once(calls: list[Callable[[], T]]) -> list[T]:
    """The results of calls in threads that do not outlive an interrupt; a failure is raised."""
    answers: Queue[tuple[int, T | Exception]] = Queue()

    def one(number: int) -> None:
        try:
            answers.put((number, calls[number]()))
        except Exception as error:
            answers.put((number, error))

    for number in range(len(calls)):
        Thread(target=one, args=(number,), daemon=True).start()
    found: dict[int, T] = {}
    while len(found) < len(calls):
        number, answer = answers.get(timeout=LIMIT)
        if isinstance(answer, Exception):
            raise answer
        found[number] = answer
    return [found[number] for number in range(len(calls))]


def devices(plan: Plan) -> str:
    """The service's device: as many slots as replicas, first come first served."""
    return (
        f'[devices.{DEVICE}]\nkind = "{plan.device}"\nprofile = "{plan.profile}"\n'
        f'policy = "fifo"\nslots = {max(plan.replicas)}\n'
    )


@contextmanager
def jobs_of(plan: Plan) -> Iterator[Jobs]:
    """The service with its device, and a place for the replicas; both end with the block."""
    with TemporaryDirectory(prefix="qtide-sharing-") as name:
        folder = Path(name)
        if plan.cluster == "slurm":
            from qtide.experiments.sharing.slurm_jobs import slurm_jobs

            with slurm_jobs(plan, folder) as jobs:
                yield jobs
            return
        with LocalService(folder, devices(plan)) as service:
            yield LocalJobs(plan, lambda number: service.client(f"user {number}"), folder)
