"""Processes started together by mpiexec or srun, which learn the root's address from the launcher.

An MPI world of several processes can end only as a whole, so qtide asks the launcher only for ranks
and the root's address; each process then starts its own MPI world.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TextIO

from qtide.core.errors import QtideError, UsageError
from qtide.mpi.control import ControlServer

LIMIT = 60.0
"""Seconds to wait for an answer of the launcher, which needs all processes to have started."""
VARIABLES = ("PMI_FD", "PMI_RANK", "PMI_SIZE")


class Launcher:
    """A client of the launcher that speaks version 1 of the PMI wire protocol."""

    def __init__(self, rank: int, size: int, handle: int) -> None:
        self.rank = rank
        self.size = size
        self._handle = handle

    @staticmethod
    def of_this_process() -> Launcher | None:
        """Return the launcher, or None if this process was started alone."""
        if "PMI_FD" in os.environ:
            handle, rank, size = (int(os.environ.pop(name)) for name in VARIABLES)
            return Launcher(rank, size, handle)
        if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
            raise UsageError(
                "srun has started several processes that do not know each other; use "
                "srun --mpi=pmi2, or start one process"
            )
        return None

    def meet(self, server: ControlServer) -> list[str]:
        """Wait for all other processes (root only); return a distinct node name for each."""
        hosts: list[str] = []

        def publish(invitations: list[str]) -> None:
            hosts.extend(self._exchange(invitations[0].replace(" ", ",")))

        server.gather(range(1, self.size), publish)
        names = [socket.gethostname(), *hosts[1:]]
        return [f"{name}.{at}" if name in names[:at] else name for at, name in enumerate(names)][1:]

    def invitation(self) -> str:
        """Return this process's invitation (not for the root)."""
        of_first = self._exchange(socket.gethostname())[0]
        host, port, _, generation, key = of_first.split(",")
        return f"{host} {port} {self.rank} {generation} {key}"

    def _exchange(self, word: str) -> list[str]:
        """Publish a word to all processes, return theirs by rank, and finish with the launcher."""
        with socket.socket(fileno=self._handle) as line:
            line.settimeout(LIMIT)
            try:
                with line.makefile("rw", encoding="ascii", newline="\n") as stream:
                    _ask(stream, "cmd=init pmi_version=1 pmi_subversion=1")
                    space = _ask(stream, "cmd=get_my_kvsname")["kvsname"]
                    _ask(stream, f"cmd=put kvsname={space} key=qtide-{self.rank} value={word}")
                    _ask(stream, "cmd=barrier_in")
                    keys = [f"kvsname={space} key=qtide-{rank}" for rank in range(self.size)]
                    words = [_ask(stream, f"cmd=get {key}")["value"] for key in keys]
                    _ask(stream, "cmd=finalize")
                    return words
            except (OSError, KeyError) as error:
                raise QtideError(f"the launcher of this MPI program failed: {error!r}") from None


def _ask(stream: TextIO, question: str) -> Mapping[str, str]:
    stream.write(f"{question}\n")
    stream.flush()
    return dict(word.partition("=")[::2] for word in stream.readline().split())
