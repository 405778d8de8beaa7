"""A box with users: their jobs, and what the service answers them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from qtide.backends.clusters.slurm.commands import Slurm, clients, environment
from qtide.backends.clusters.slurm.prolog import PATH, binding, served_by
from qtide.service.admission import AdmissionRequest, Grant, SlurmAdmission
from tests.backends.slurm.stage import until
from tests.service.admission.users import User

T = TypeVar("T")
LONG = "sleep 600"


class Site:
    """What the tests do on a box."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "etc/slurm.conf"
        self.munge_socket = folder / "run/munge"
        self.slurm = Slurm(self.conf)

    def run(self, user: User, *words: str, check: bool = True, **env: str) -> str:
        """The output of a command that a user runs in a plain environment."""
        path = os.defpath + ":/usr/sbin"
        plain = {"PATH": path, "SLURM_CONF": str(self.conf), **clients(self.conf, path), **env}
        done = subprocess.run(
            user.words(*words),
            env=plain,
            cwd="/tmp",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def submit(self, user: User, *options: str, command: str = LONG) -> int:
        """A queued job of a user."""
        common = ("--parsable", "--partition=quantum", "--output=/dev/null")
        return int(self.run(user, "sbatch", *common, f"--wrap={command}", *options))

    def start(self, user: User, *options: str, command: str = LONG) -> int:
        """A running job of a user."""
        job = self.submit(user, *options, command=command)
        assert until(lambda: self.state(job) == "RUNNING")
        return job

    def start_in_two_parts(self, user: User) -> int:
        """A running heterogeneous job; its second component holds a slot."""
        parts = ("--partition=compute", ":", "--partition=quantum", "--gres=qpu:1")
        return self.start(user, *parts)

    def state(self, job: int) -> str:
        return self.say("scontrol", "show", "job", str(job)).partition("JobState=")[2].split()[0]

    def say(self, *words: str) -> str:
        """A command of the operator."""
        return subprocess.run(
            words,
            env=environment(self.conf),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def clear(self) -> None:
        """Cancel all jobs, and wait until Slurm has ended them."""
        jobs = self.say("squeue", "--noheader", "--format=%A").split()
        if jobs:
            self.say("scancel", "--full", *jobs)
        assert until(lambda: self.say("squeue", "--noheader") == "")

    def play(self, scene: Callable[[SlurmAdmission], Awaitable[T]]) -> T:
        """Run a scenario with admission by this site."""

        async def whole() -> T:
            with closing(SlurmAdmission(self.conf)) as admission:
                return await scene(admission)

        return asyncio.run(whole())

    def admit(self, user: User, job: int) -> Grant:
        """What the service answers a user who asks for a job."""
        request = ask_for(job)
        return self.play(lambda admission: admission.admit(self.proof(user, request), request))

    def proof(self, user: User, request: AdmissionRequest) -> str:
        payload = binding(request.method, request.path, request.body, *request.audiences)
        return user.credential(self.munge_socket, payload)


def ask_for(job: object) -> AdmissionRequest:
    here = frozenset({served_by(os.geteuid())})
    return AdmissionRequest("POST", PATH, json.dumps({"job": job}).encode(), here)
