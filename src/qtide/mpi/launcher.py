"""The launcher that started this process: `mpiexec`, or `srun --mpi=pmi2`.

It is only asked for what its processes have to know of each other. MPI itself never hears of it: a
world that a launcher has made can only end as a whole, and here processes come and go one by one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TextIO

from qtide.errors import QtideError, UsageError

LIMIT = 60.0
"""Seconds within which all processes have to have been started."""
VARIABLES = ("PMI_FD", "PMI_RANK", "PMI_SIZE")

Ask = Callable[[str], Mapping[str, str]]


class Launcher:
    """Speaks the first version of PMI's wire protocol, as a client."""

    def __init__(self, rank: int, size: int, handle: int) -> None:
        self.rank = rank
        self.size = size
        self._handle = handle

    @staticmethod
    def of_this_process() -> Launcher | None:
        """None if this process was started alone."""
        if "PMI_FD" in os.environ:
            handle, rank, size = (int(os.environ.pop(name)) for name in VARIABLES)
            return Launcher(rank, size, handle)
        if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
            raise UsageError(
                "srun has started several processes that do not know each other; use "
                "srun --mpi=pmi2, or start one process"
            )
        return None

    def exchanged(self, word: str) -> list[str]:
        """What each process says to all, by rank; the launcher is not needed any more then."""
        with socket.socket(fileno=self._handle) as line:
            line.settimeout(LIMIT)
            try:
                with line.makefile("rw", encoding="ascii", newline="\n") as stream:
                    return self._exchanged(partial(_answer, stream), word)
            except (OSError, KeyError) as error:
                raise QtideError(f"the launcher of this MPI program failed: {error!r}") from None

    def _exchanged(self, ask: Ask, word: str) -> list[str]:
        ask("cmd=init pmi_version=1 pmi_subversion=1")
        space = ask("cmd=get_my_kvsname")["kvsname"]
        ask(f"cmd=put kvsname={space} key=qtide-{self.rank} value={word}")
        ask("cmd=barrier_in")
        answers = [ask(f"cmd=get kvsname={space} key=qtide-{rank}") for rank in range(self.size)]
        ask("cmd=finalize")
        return [answer["value"] for answer in answers]


def _answer(stream: TextIO, text: str) -> Mapping[str, str]:
    stream.write(f"{text}\n")
    stream.flush()
    return dict(word.partition("=")[::2] for word in stream.readline().split())
