"""Replicas as jobs of a real Slurm: each holds a licence, and gets its token from the prolog.

A job runs once to load its libraries, says that it is ready, and waits for the word to begin.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qtide import box
from qtide.client.client import Client
from qtide.errors import QtideError
from qtide.experiments.sharing.jobs import READY_LIMIT, Jobs, devices
from qtide.experiments.sharing.plan import Plan, Point, read_plan
from qtide.experiments.sharing.replica import LIMIT, Record, Replica
from qtide.slurm.commands import environment, reason
from qtide.system.files import write_whole
from qtide.testing.service import LocalService

PAUSE = 0.01
"""Seconds between two looks at a file."""
COMMAND_LIMIT = 60.0


class SlurmJobs(Jobs):
    """One job per replica, on the partition `quantum`."""

    def __init__(self, plan: Plan, conf: Path, folder: Path) -> None:
        self._conf = conf
        self._folder = folder
        plan.keep(folder)

    def run(self, point: Point) -> list[Record]:
        """Submit the jobs, let them begin together, and read what they have written."""
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
        return [Record(**json.loads(text)) for text in texts]

    def _submit(self, folder: Path, number: int, alpha: float) -> str:
        words = [sys.executable, "-m", "qtide.experiments.sharing.slurm_jobs"]
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
def slurm_jobs(plan: Plan, folder: Path) -> Iterator[SlurmJobs]:
    """A box with as many licences as replicas, and a service that its jobs may use."""
    place = folder / "box"
    conf = place / "etc" / "slurm.conf"
    service = LocalService(folder, devices(plan) + f'[slurm]\nconf = "{conf}"\n')
    box.up(place, nodes=1, qpus=max(plan.replicas), service=service.url)
    try:
        with service:
            yield SlurmJobs(plan, conf, folder)
    finally:
        box.down(place)


def main(folder: Path, number: int, alpha: float) -> None:
    """What a job does."""
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
    """Wait until something holds; say what the jobs have said if it takes too long."""
    end = time.monotonic() + limit
    while not holds():
        if time.monotonic() > end:
            said = [file.read_text().strip() for file in sorted(folder.glob("log-*"))]
            last = next((text.splitlines()[-1] for text in said if text), "they said nothing")
            raise QtideError(f"the jobs in {folder} did not get on within {limit:g} s: {last}")
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
