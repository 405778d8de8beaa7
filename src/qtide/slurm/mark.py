"""The marks that companions carry: they name the driver, so that a dead driver's can be found."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote

from qtide.jobs.job import Job

PREFIX = "qtide"
LONGEST_NAME = 100


@dataclass(frozen=True)
class Driver:
    """A process that asks for nodes: where it runs, its pid, and when it began."""

    host: str
    space: str
    """The pid namespace: in a container, pids mean something else."""
    pid: int
    began: str

    @staticmethod
    def own() -> Driver:
        """This process."""
        return Driver(_host(), _space(), os.getpid(), _began(os.getpid()))

    @staticmethod
    def read(comment: str) -> Driver | None:
        """From a companion's comment; None if it is not a companion's."""
        words = comment.split(":")
        if len(words) != 5 or words[0] != PREFIX or not words[3].isdecimal():
            return None
        return Driver(words[1], words[2], int(words[3]), words[4])

    def comment(self) -> str:
        """In the form of a companion's comment."""
        return f"{PREFIX}:{self.host}:{self.space}:{self.pid}:{self.began}"

    @property
    def dead(self) -> bool:
        """Whether it is known to have ended; from another machine this cannot be known."""
        here = (self.host, self.space) == (_host(), _space())
        return here and _began(self.pid) != self.began


def job_name(job: Job) -> str:
    """The name of all companions of a run: readable, safe, and unique to the run's folder."""
    place = blake2b(bytes(job.values.folder.absolute()), digest_size=4).hexdigest()
    return f"{PREFIX}-{quote(job.name, safe='', errors='replace')[:LONGEST_NAME]}-{place}"


def qpu_name(job: Job) -> str:
    """The name of all jobs that hold a QPU for a run, so that their nodes count separately."""
    return f"{job_name(job)}-qpu"


def _host() -> str:
    return quote(socket.gethostname(), safe="")


def _space() -> str:
    return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")


def _began(pid: int) -> str:
    """The kernel's start time of a process; empty if there is none, or only its zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] == "Z" else words[19]
