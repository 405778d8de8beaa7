"""What a user can choose for companions: where they run, on which account, for how long."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qtide.backends.clusters.link import SILENCE, preparation_terms, supervisor_terms
from qtide.core.job import Preparation

ADMISSION = {"gres": "--gres=qpu:1", "licence": "--licenses=qpu:1"}
"""What a job that holds one virtual QPU asks for."""

AGENT = "from qtide.backends.clusters.agent import main; main()"
"""The same as `-m qtide.backends.clusters.agent`, without the milliseconds of looking it up."""


@dataclass(frozen=True)
class CompanionOptions:
    """Values as Slurm takes them; None means the site's default."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time_limit: str = "60"
    """Minutes, or any form that --time takes. A companion that reaches it is replaced."""
    queue_limit: float = 86400.0
    """Seconds after which a request that is still queued is given up."""
    whole_nodes: bool = True
    """Ask for exclusive nodes, with all of their memory."""
    extra: Sequence[str] = ()
    """More options for salloc, such as --reservation=NAME."""
    qpu_by: str | None = None
    """How Slurm grants leases of the QPU: `gres` or `licence`; None if it does not."""
    qpu_partition: str = "quantum"
    """The partition of jobs that hold a QPU."""
    silence: float = SILENCE
    """Seconds without a heartbeat after which a node counts as lost."""
    python: str = sys.executable
    """The interpreter that runs agents; the same path has to work on the nodes."""

    def salloc(self, name: str, comment: str, nodes: str) -> list[str]:
        """The command that asks for a companion with `nodes` nodes: a number or a range."""
        return [
            "salloc",
            f"--nodes={nodes}",
            *self._of_any_job(name, comment),
            "--no-kill",  # a node that fails does not end the others
            *(["--exclusive", "--mem=0"] if self.whole_nodes else []),
            *_given(partition=self.partition, constraint=self.constraint),
            *self.extra,
        ]

    def qpu(self, name: str, comment: str) -> list[str]:
        """The options of salloc for a job, or a component of one, that holds a QPU."""
        assert self.qpu_by is not None
        words = [f"--partition={self.qpu_partition}", "--ntasks=1", ADMISSION[self.qpu_by]]
        return [*words, *self._of_any_job(name, comment)]

    def srun(
        self, job: int, node: str, preparation: Preparation, *, het: bool = False
    ) -> list[str]:
        """The command that runs an agent on a node of a companion, with all its resources."""
        terms = {
            "supervisor": self._supervisor(job),
            "preparation": preparation_terms(preparation),
        }
        return self.step(job, node, [self.python, "-c", AGENT, json.dumps(terms)], het=het)

    def step(self, job: int, node: str, command: list[str], *, het: bool = False) -> list[str]:
        """The command that runs another one on a node of a companion, with all its resources."""
        return [
            "srun",
            f"--jobid={job}",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={node}",
            *(["--het-group=0"] if het else []),  # with --nodelist, it is not implied
            "--mpi=none",
            "--cpu-bind=none",
            "--unbuffered",
            *command,
        ]

    def _supervisor(self, job: int) -> dict[str, Any]:
        """A node whose driver is lost cancels its own companion, long before the time limit."""
        return supervisor_terms(self.silence, ["scancel", str(job)])

    def _of_any_job(self, name: str, comment: str) -> list[str]:
        own = [f"--job-name={name}", f"--comment={comment}", f"--time={self.time_limit}"]
        return [*own, *_given(account=self.account, qos=self.qos)]


def _given(**words: str | None) -> list[str]:
    return [f"--{key}={value}" for key, value in words.items() if value is not None]
