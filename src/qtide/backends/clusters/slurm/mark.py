"""The mark on a companion that names its driver, and the reaper of dead drivers' companions."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

from qtide.backends.clusters.slurm.commands import Slurm
from qtide.backends.clusters.slurm.queue import entries
from qtide.core.job import JobContext

PREFIX = "qtide"
LONGEST_NAME = 100


@dataclass(frozen=True)
class Driver:
    """A process that requests nodes: its host, pid namespace, pid and start time."""

    host: str
    space: str
    """The pid namespace; pids in a container have a different meaning."""
    pid: int
    began: str

    @staticmethod
    def own() -> Driver:
        """This process."""
        return Driver(_host(), _space(), os.getpid(), _began(os.getpid()))

    @staticmethod
    def read(comment: str) -> Driver | None:
        """Parse a job's comment; None if the job is not a companion."""
        words = comment.split(":")
        if len(words) != 5 or words[0] != PREFIX or not words[3].isdecimal():
            return None
        return Driver(words[1], words[2], int(words[3]), words[4])

    def comment(self) -> str:
        """The comment that marks this driver's companions."""
        return f"{PREFIX}:{self.host}:{self.space}:{self.pid}:{self.began}"

    @property
    def dead(self) -> bool:
        """Whether the driver is known to have ended; on another machine, this is unknown."""
        here = (self.host, self.space) == (_host(), _space())
        return here and _began(self.pid) != self.began


def job_name(job: JobContext) -> str:
    """The name of all companions of a run: readable, safe and unique to the run's folder."""
    place = blake2b(bytes(job.values.folder.absolute()), digest_size=4).hexdigest()
    return f"{PREFIX}-{quote(job.name, safe='', errors='replace')[:LONGEST_NAME]}-{place}"


def qpu_name(job: JobContext) -> str:
    """The name of all jobs that hold a QPU for a run; their nodes are counted separately."""
    return f"{job_name(job)}-qpu"


def _host() -> str:
    return quote(socket.gethostname(), safe="")


def _space() -> str:
    return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")


def _began(pid: int) -> str:
    """The kernel's start time of a process; empty if it does not exist or is a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] == "Z" else words[19]


async def reap(slurm: Slurm, names: Collection[str] = ()) -> list[int]:
    """Cancel companions of drivers that are known to be dead; return their job numbers.

    Given the names of a run's companions, cancel those of every other driver: the lock on a run's
    journal allows only one driver at a time, and that is us.
    """
    terms = [f"--user={os.getuid()}", *([f"--name={','.join(names)}"] if names else [])]
    own = Driver.own()
    orphans = {
        each.leader
        for each in await entries(slurm, *terms)
        if (driver := Driver.read(each.comment)) and driver != own and (names or driver.dead)
    }
    await cancel(slurm, orphans)
    return sorted(orphans)


async def reap_after(slurm: Slurm, driver: Driver) -> list[int]:
    """Cancel the companions of one driver if it is dead; return their job numbers."""
    found = await entries(slurm, f"--user={os.getuid()}") if driver.dead else []
    mine = driver.comment()
    left = {each.leader for each in found if each.comment == mine and each.state != "COMPLETING"}
    await cancel(slurm, left)
    return sorted(left)


async def leftovers(slurm: Slurm, names: Collection[str]) -> set[int]:
    """This process's companions with these names that Slurm still has."""
    if not names:
        return set()
    mine = Driver.own().comment()
    found = await entries(slurm, f"--user={os.getuid()}", f"--name={','.join(names)}")
    return {each.leader for each in found if each.comment == mine and each.state != "COMPLETING"}


async def cancel(slurm: Slurm, jobs: Collection[int]) -> None:
    """Cancel jobs."""
    if jobs:
        await slurm.output("scancel", *map(str, jobs))
