"""A real PostgreSQL server for a test: its own data folder and a loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qtide.core.sockets import free_ports
from tests.backends.slurm.fixtures import install
from tests.service.serving import wait_until

LIMIT = 60.0


class PostgresServer:
    """A server that tests may kill; since it refuses to run as root, root starts it as postgres.

    `within` are words before its command, which start it on another host, at `address`.
    """

    def __init__(self, address: str = "127.0.0.1", within: Sequence[str] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="qtide-pg-"))
        (self.port,) = free_ports(1)
        self.url = f"postgresql://qtide@{address}:{self.port}/postgres"
        self._address = address
        self._within = list(within)
        self._programs = _programs()
        self._terms: dict[str, Any] = {"cwd": self.folder, "stdout": subprocess.DEVNULL}
        if os.geteuid() == 0:
            group = pwd.getpwnam("postgres").pw_gid
            self._terms |= {"user": "postgres", "group": group, "extra_groups": []}
            shutil.chown(self.folder, "postgres")
        words = ("initdb", "--pgdata=data", "--auth=trust", "--username=qtide", "--no-sync")
        subprocess.run([self._programs / words[0], *words[1:]], check=True, **self._terms)
        with (self.folder / "data/pg_hba.conf").open("a") as file:
            file.write(f"host all all {address}/24 trust\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> PostgresServer:
        """Start it and wait until it answers."""
        words = ("-D", "data", "-p", str(self.port), "-k", ".", "-h", self._address)
        terms, before = self._terms, self._within
        if before:  # only root can enter the host, so the user changes there
            before = [
                *before,
                *["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"],
            ]
            terms = {"cwd": self.folder, "stdout": subprocess.DEVNULL}
        with (self.folder / "log").open("ab") as log:
            server = [*before, str(self._programs / "postgres"), *words]
            self._process = subprocess.Popen(server, stderr=log, **terms)
        wait_until(self._answers, LIMIT)
        return self

    def kill(self) -> None:
        """Kill all its processes, like a power cut."""
        assert self._process is not None
        pid = self._process.pid
        os.kill(pid, signal.SIGSTOP)  # so that it has no further children
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            os.kill(each, signal.SIGKILL)
        self._process.wait(LIMIT)
        wait_until(lambda: not any(_lives(int(each)) for each in children), LIMIT)

    def stop(self) -> None:
        """Stop it and remove its folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)  # PostgreSQL's immediate shutdown
            self._process.wait(LIMIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        words = [
            str(self._programs / "pg_isready"),
            "-q",
            "-h",
            self._address,
            "-p",
            str(self.port),
        ]
        return subprocess.run(words, check=False).returncode == 0


@contextmanager
def store_setting(*, postgresql: bool) -> Iterator[str]:
    """What a configuration says about its store: a database of our own, or nothing."""
    if not postgresql:
        yield ""
        return
    server = PostgresServer().start()
    try:
        yield f'store = "{server.url}"'
    finally:
        server.stop()


def _lives(pid: int) -> bool:
    """Whether a process still runs; a dead one that nobody has waited for does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _programs() -> Path:
    """The folder of PostgreSQL's programs, which Debian keeps out of the search path."""
    if not (found := sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))):
        install("PostgreSQL is missing: apt-get install postgresql", ["postgresql"])
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent
