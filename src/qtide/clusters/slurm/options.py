"""What a user may say about companions: where they run, on whose account, for how long."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

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
    python: str = sys.executable
    """The interpreter that runs agents; the same path has to work on the nodes."""

    def salloc(self, name: str, comment: str, nodes: str) -> list[str]:
        """The command that asks for a companion with `nodes` nodes: a number or a range."""
        chosen = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
        }
        return [
            "salloc",
            f"--nodes={nodes}",
            f"--job-name={name}",
            f"--comment={comment}",
            f"--time={self.time_limit}",
            "--no-kill",  # one node that fails takes no other with it
            *(["--exclusive", "--mem=0"] if self.whole_nodes else []),
            *(f"--{key}={value}" for key, value in chosen.items() if value is not None),
            *self.extra,
        ]

    def srun(self, job: int, node: str) -> list[str]:
        """The command that runs an agent on a node of a companion, with all that the node has."""
        return [
            "srun",
            f"--jobid={job}",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={node}",
            "--mpi=none",
            "--cpu-bind=none",
            "--unbuffered",
            *(self.python, "-c", AGENT),
        ]
