"""The nodes of processes that mpiexec or srun started together, and their way back to Slurm.

Only the root imports this module; its imports would slow the start of newcomers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from tempfile import TemporaryDirectory

from qtide.backends.clusters.slurm.commands import environment
from qtide.core.ledger import Span
from qtide.mpi.control import ControlServer

STEP_END = 0.5
"""Seconds in which Slurm learns that a process of a step has ended: then it need not kill it."""
SLURM_LIMIT = 30.0
"""Seconds within which Slurm must answer."""
POLL = 0.005
"""Seconds between two checks whether processes have ended."""
SIZES = ("SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS")
"""Environment variables that all have the number of processes, if the step is all of its job."""
OTHERS = {"SLURM_HET_SIZE", "MPI_LOCALRANKID"}
"""Variables of heterogeneous jobs, and of mpiexec, which ends if a node of its is taken away."""


class FounderNodes:
    """The nodes of the processes that were started with the root, by member.

    They belong to whoever started the processes. Slurm takes them back from its job once their
    processes have ended; other launchers hold them until the program ends.
    """

    def __init__(
        self, server: ControlServer, held: Mapping[int, Span], step: SlurmStep | None
    ) -> None:
        self.held = held
        self._server = server
        self._step = step
        self._closing = threading.Event()
        self._releases: list[threading.Thread] = []
        self._one_by_one = threading.Lock()

    def release(self, members: Collection[int]) -> None:
        """Give the members' nodes back as soon as their processes have ended."""
        if self._step is not None and members:
            release = threading.Thread(target=self._release, args=(members,), daemon=True)
            self._releases.append(release)
            release.start()

    def close(self) -> None:
        """Stop giving nodes back: the program ends, and all of them are free."""
        self._closing.set()
        for each in self._releases:
            each.join(SLURM_LIMIT)
        for span in self.held.values():
            span.close()

    def _release(self, members: Collection[int]) -> None:
        while self._server.connected & set(members):
            if self._closing.wait(POLL):
                return
        if self._closing.wait(STEP_END):
            return
        assert self._step is not None
        with self._one_by_one:
            if self._step.give_back(members):
                for each in members:
                    self.held[each].close()


class SlurmStep:
    """The job and the nodes of a program that srun started with one process per node."""

    def __init__(self, job: str, nodes: Sequence[str]) -> None:
        self.nodes = nodes
        self._job = job
        self._kept = dict(enumerate(nodes))

    @staticmethod
    def of_this_process(processes: int) -> SlurmStep | None:
        """Return the step, if it is all that runs in its job; None for other launchers."""
        sizes = {os.environ.get(name) for name in SIZES}
        if sizes != {str(processes)} or OTHERS & os.environ.keys():
            return None
        listed = _scontrol("show", "hostnames", os.environ.get("SLURM_STEP_NODELIST", ""))
        nodes = listed.stdout.split()
        return SlurmStep(os.environ["SLURM_JOB_ID"], nodes) if len(nodes) == processes else None

    def give_back(self, ranks: Collection[int]) -> bool:
        """Reduce the job to the nodes of the other ranks; whether Slurm did so."""
        kept = {rank: name for rank, name in self._kept.items() if rank not in ranks}
        done = _scontrol("update", f"JobId={self._job}", f"NodeList={','.join(kept.values())}")
        if done.returncode:
            sys.stderr.write(
                "qtide: Slurm does not take the nodes of ranks that left back before the program "
                f"ends: {done.stderr.strip()}\n"
            )
            return False
        self._kept = kept
        return True


def _scontrol(*words: str) -> subprocess.CompletedProcess[str]:
    """Run scontrol where the scripts that it writes do not stay."""
    with TemporaryDirectory() as folder:
        try:
            return subprocess.run(
                ["scontrol", *words],
                cwd=folder,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=SLURM_LIMIT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(words, 1, "", str(error))
