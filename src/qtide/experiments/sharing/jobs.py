"""Run replicas in threads of this process, or as jobs of a real Slurm with one licence each.

Either way all replicas start together: each loads what it needs before the first one begins.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from threading import Barrier, Thread
from typing import TypeVar

from qtide import box
from qtide.backends.client.client import Client
from qtide.backends.clusters.slurm.commands import environment, reason
from qtide.core.errors import QtideError
from qtide.core.files import write_whole
from qtide.experiments.sharing.replica import DEVICE, LIMIT, Replica, ReplicaRecord
from qtide.experiments.sharing.sharing_plan import Point, SharingPlan, read_plan
from qtide.service.local_service import LocalService

T = TypeVar("T")

READY_LIMIT = 300.0
"""Seconds within which all replicas must be ready."""


class ReplicaJobs(ABC):
    """Runs the replicas of a point, one point at a time."""

    @abstractmethod
    def run(self, point: Point) -> list[ReplicaRecord]:
        """Run the replicas of a point and return their records."""


class LocalJobs(ReplicaJobs):
    """Runs replicas in threads; they mostly sleep or wait for the service, so threads suffice."""

    def __init__(self, plan: SharingPlan, client: Callable[[int], Client], folder: Path) -> None:
        self._plan = plan
        self._clients = [client(number) for number in range(max(1, *plan.replicas))]
        self._folder = folder
        self._one(0, 0.0, Barrier(1))  # loads all libraries, here and at the service

    def run(self, point: Point) -> list[ReplicaRecord]:
        """Run all replicas at once; raise the first failure."""
        together = Barrier(point.replicas)
        return at_once(
            [partial(self._one, number, point.alpha, together) for number in range(point.replicas)]
        )

    def _one(self, number: int, alpha: float, together: Barrier) -> ReplicaRecord:
        folder = self._folder / f"replica-{number}"
        folder.mkdir(exist_ok=True)
        replica = Replica(self._clients[number], self._plan, alpha, folder)
        together.wait(READY_LIMIT)
        return replica.run()


def at_once(calls: list[Callable[[], T]]) -> list[T]:
    """Run calls in daemon threads, so an interrupt ends them; raise the first failure."""
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


def devices(plan: SharingPlan) -> str:
    """Configuration of the service's device: FIFO, with as many slots as replicas."""
    return (
        f'[devices.{DEVICE}]\nkind = "{plan.device}"\nprofile = "{plan.profile}"\n'
        f'policy = "fifo"\nslots = {max(plan.replicas)}\n'
    )


@contextmanager
def jobs_of(plan: SharingPlan) -> Iterator[ReplicaJobs]:
    """Start the service and the runner of the replicas; stop both at the end of the block."""
    with TemporaryDirectory(prefix="qtide-sharing-") as name:
        folder = Path(name)
        if plan.cluster == "slurm":
            with slurm_jobs(plan, folder) as jobs:
                yield jobs
            return
        with LocalService(folder, devices(plan), bound=True) as service:
            yield LocalJobs(plan, lambda number: service.client(f"user {number}"), folder)


PAUSE = 0.01
"""Seconds between two checks."""
COMMAND_LIMIT = 60.0


class SlurmJobs(ReplicaJobs):
    """Runs each replica as a Slurm job on the partition `quantum`."""

    def __init__(self, plan: SharingPlan, conf: Path, folder: Path) -> None:
        self._conf = conf
        self._folder = folder
        plan.keep(folder)

    def run(self, point: Point) -> list[ReplicaRecord]:
        """Submit the jobs, start them together, and read their records."""
        folder = self._folder / point.name
        folder.mkdir()
        numbers = range(point.replicas)
        ids = [self._submit(folder, number, point.alpha) for number in numbers]
        try:
            _await(lambda: _all(folder, "ready", point.replicas), READY_LIMIT, folder)
            (folder / "go").touch()
            _await(lambda: _all(folder, "record", point.replicas), LIMIT, folder)
        except BaseException:
            self._say("scancel", "--full", *ids)
            raise
        _await(lambda: not self._say("squeue", "--noheader", "--format=%A"), LIMIT, folder)
        texts = [(folder / f"record-{number}").read_text() for number in numbers]
        return [ReplicaRecord(**json.loads(text)) for text in texts]

    def _submit(self, folder: Path, number: int, alpha: float) -> str:
        words = [sys.executable, "-m", "qtide.experiments.sharing.jobs"]
        wrapped = " ".join([*words, str(folder), str(number), f"{alpha:g}"])
        where = ["--partition=quantum", "--licenses=qpu:1", f"--chdir={folder}"]
        log = f"--output={folder}/log-{number}"
        return self._say("sbatch", "--parsable", *where, log, f"--wrap={wrapped}").strip()

    def _say(self, *words: str) -> str:
        done = subprocess.run(
            words,
            env=environment(self._conf),
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_LIMIT,
        )
        if done.returncode:
            raise QtideError(f"{words[0]} failed: {reason(done.stderr)}")
        return done.stdout


@contextmanager
def slurm_jobs(plan: SharingPlan, folder: Path) -> Iterator[SlurmJobs]:
    """Start a Slurm box with one licence per replica, and a service that its jobs may use."""
    place = folder / "box"
    conf = place / "etc" / "slurm.conf"
    service = LocalService(folder, devices(plan) + f'[slurm]\nconf = "{conf}"\n', bound=True)
    box.up(place, nodes=1, qpus=max(plan.replicas), service=service.url)
    try:
        with service:
            yield SlurmJobs(plan, conf, folder)
    finally:
        box.down(place)


def main(folder: Path, number: int, alpha: float) -> None:
    """Run one replica as a Slurm job; mark a failure in a file so that nobody waits for it."""
    try:
        _replica(folder, number, alpha)
    except BaseException:
        (folder / f"failed-{number}").touch()
        raise


def _replica(folder: Path, number: int, alpha: float) -> None:
    own = folder / f"replica-{number}"
    own.mkdir()
    client, plan = Client(), read_plan(folder.parent)
    Replica(client, plan, 0.0, own).run()  # loads all libraries
    replica = Replica(client, plan, alpha, own)
    (folder / f"ready-{number}").touch()
    _await((folder / "go").exists, READY_LIMIT, folder)
    record = json.dumps(replica.run().as_dict())
    write_whole(folder / f"record-{number}", record.encode())


def _all(folder: Path, what: str, number: int) -> bool:
    return len(list(folder.glob(f"{what}-*"))) == number


def _await(holds: Callable[[], bool], limit: float, folder: Path) -> None:
    """Wait until `holds()` is true; on a failed job or a timeout, raise and quote a job's log."""
    end = time.monotonic() + limit
    while not holds():
        failed = any(folder.glob("failed-*"))
        if failed or time.monotonic() > end:
            logs = [file.read_text().strip() for file in sorted(folder.glob("log-*"))]
            last = next((text.splitlines()[-1] for text in logs if text), "the logs are empty")
            problem = "a job failed" if failed else f"the jobs are not done after {limit:g} s"
            raise QtideError(f"{folder}: {problem}: {last}")
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
