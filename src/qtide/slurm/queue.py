"""What Slurm's queue and its partitions look like, from the text that squeue and sinfo print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qtide.slurm.commands import Slurm, SlurmFailed

JOBS = ("squeue", "--noheader", "--format=%i|%T|%D|%S|%e|%r|%N|%k")
"""The comment stands last: nothing that a user wrote can move another field."""

PARTITIONS = ("sinfo", "--noheader", "--format=%P|%T|%D")

HOLDING = {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING"}
"""States in which a job has nodes."""

UNUSABLE = ("down", "drain", "fail", "error", "unknown", "future", "maint", "power")
"""How the states of nodes begin that take no work; `draining` and `failing` among them."""


@dataclass(frozen=True)
class Entry:
    """A job as the queue has it. Times in seconds since 1970; None is not known."""

    job: int
    state: str
    nodes: int = 0
    start: float | None = None
    end: float | None = None
    reason: str = ""
    names: str = ""
    """Its nodes as a list of Slurm's; a node that failed is there no more."""
    comment: str = ""

    @property
    def holds(self) -> bool:
        """Whether it has nodes."""
        return self.state in HOLDING

    def node_seconds(self, now: float) -> float:
        """What it has used of its nodes."""
        if self.start is None or self.state == "PENDING":
            return 0.0
        end = now if self.holds or self.end is None else self.end
        return max(0.0, end - self.start) * self.nodes


async def entries(slurm: Slurm, *terms: str) -> list[Entry]:
    """The jobs that fit squeue's own terms; none if Slurm has forgotten the one asked for."""
    try:
        return list(parse_jobs(await slurm.ask(*JOBS, *terms)))
    except SlurmFailed as error:
        if "Invalid job id" in str(error):
            return []
        raise


async def partition_size(slurm: Slurm, partition: str | None) -> int:
    """How many nodes of a partition, or of the default one, can take work."""
    found = parse_partitions(await slurm.ask(*PARTITIONS))
    return sum(
        nodes for name, default, nodes in found if (name == partition if partition else default)
    )


def parse_jobs(text: str) -> Iterator[Entry]:
    """The lines that are jobs; what a newline in a comment has torn off is passed over."""
    for line in text.splitlines():
        words = line.split("|", 7)
        words[0] = words[0].partition("+")[0]  # a part of a heterogeneous job counts as the job
        if len(words) == 8 and words[0].isdecimal() and words[2].isdecimal():
            job, state, nodes, start, end, *texts = words
            times = (_time(start), _time(end))
            yield Entry(int(job), plain_state(state), int(nodes), *times, *texts)


def parse_partitions(text: str) -> Iterator[tuple[str, bool, int]]:
    """Partition, whether it is the default, and a number of usable nodes."""
    for line in text.splitlines():
        name, state, nodes = line.rsplit("|", 2)
        if not state.lower().startswith(UNUSABLE):
            yield name.removesuffix("*"), name.endswith("*"), int(nodes)


def plain_state(text: str) -> str:
    """`CANCELLED by 0`, `CANCELLED+`, `completing,cancelled`: the first word says it."""
    return text.replace(",", " ").split()[0].rstrip("+*").upper() if text.strip() else "UNKNOWN"


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
