"""What a user may say about companions: where they run, on whose account, for how long."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qtide.clusters.link import SILENCE, supervisor_terms

ADMISSION = {"gres": "--gres=qpu:1", "licence": "--licenses=qpu:1"}
"""What a job asks for that holds one virtual QPU."""

AGENT = "from qtide.clusters.agent import main; main()"
"""What `-m qtide.clusters.agent` does, without the milliseconds that looking it up takes."""


@dataclass(frozen=True)
class Options:
    """Words as Slurm has them; None leaves it to the site's defaults."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time_limit: str = "60"
    """Minutes, or any form that --time takes. A companion that reaches it is replaced."""
    queue_limit: float = 86400.0
    """Seconds after which a request that still stands in the queue is given up."""
    whole_nodes: bool = True
    """Ask for nodes that are shared with nobody, with all of their memory."""
    extra: Sequence[str] = ()
    """More options of salloc, such as --reservation=NAME."""
    qpu_by: str | None = None
    """How Slurm admits to the QPU: `gres` or `licence`; None if that is not for Slurm to say."""
    qpu_partition: str = "quantum"
    """Where jobs stand that hold a QPU."""
    silence: float = SILENCE
    """Seconds without a word of a node after which it counts as lost."""
    python: str = sys.executable
    """The interpreter that runs agents; the same path has to work on the nodes."""

    def salloc(self, name: str, comment: str, nodes: str) -> list[str]:
        """The command that asks for a companion with `nodes` nodes: a number or a range."""
        return [
            "salloc",
            f"--nodes={nodes}",
            *self._of_any_job(name, comment),
            "--no-kill",  # one node that fails takes no other with it
            *(["--exclusive", "--mem=0"] if self.whole_nodes else []),
            *_given(partition=self.partition, constraint=self.constraint),
            *self.extra,
        ]

    def qpu(self, name: str, comment: str) -> list[str]:
        """What salloc is told of a job, or of a part of one, that holds a QPU."""
        assert self.qpu_by is not None
        words = [f"--partition={self.qpu_partition}", "--ntasks=1", ADMISSION[self.qpu_by]]
        return [*words, *self._of_any_job(name, comment)]

    def srun(self, job: int, node: str, *, het: bool = False) -> list[str]:
        """The command that runs an agent on a node of a companion, with all that the node has."""
        return [
            "srun",
            f"--jobid={job}",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={node}",
            *(["--het-group=0"] if het else []),  # with --nodelist, it does not go without saying
            "--mpi=none",
            "--cpu-bind=none",
            "--unbuffered",
            *(self.python, "-c", AGENT, json.dumps({"supervisor": self._warden(job)})),
        ]

    def _warden(self, job: int) -> dict[str, Any]:
        """A node whose driver is lost ends its companion, which nobody else may do for long."""
        return supervisor_terms(self.silence, ["scancel", str(job)])

    def _of_any_job(self, name: str, comment: str) -> list[str]:
        own = [f"--job-name={name}", f"--comment={comment}", f"--time={self.time_limit}"]
        return [*own, *_given(account=self.account, qos=self.qos)]


def _given(**words: str | None) -> list[str]:
    return [f"--{key}={value}" for key, value in words.items() if value is not None]
