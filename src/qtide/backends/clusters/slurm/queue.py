"""The only parser of Slurm's queue, as squeue prints it.

Users choose a job's comment and, without accounting, its account; both may contain newlines. So an
unguessable mark precedes every field, and no field can forge another.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace

from qtide.backends.clusters.slurm.commands import LIMIT, Slurm, SlurmFailed
from qtide.core.resources import BillingWeights, NodeKind

FIELDS = ("%A", "%i", "%T", "%U", "%D", "%S", "%e", "%r", "%N", "%b", "%W", "%a", "%k")
"""Job number, number as displayed, state, uid, node count, start, end, reason, node names, GRES,
licences, account, comment."""

HOLDING = {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING"}
"""States in which a job has nodes."""


@dataclass(frozen=True)
class QueueEntry:
    """A job or a job component. Times are seconds since 1970; None means unknown."""

    job: int
    state: str
    nodes: int = 0
    start: float | None = None
    end: float | None = None
    leader: int = 0
    """Number of the job's first component; the job's own number if it has only one."""
    uid: int = 0
    reason: str = ""
    names: str = ""
    """Its nodes as a Slurm node list, without failed ones."""
    gres: str = ""
    licences: str = ""
    account: str = ""
    """Empty if Slurm knows none."""
    comment: str = ""

    @property
    def holds(self) -> bool:
        """Whether it has nodes."""
        return self.state in HOLDING

    def node_seconds(self, now: float) -> float:
        """Node-seconds used until `now`.

        Slurm charges no time in which a job completes, though a node that it cannot reach may keep
        a job doing so.
        """
        if self.start is None or self.state == "PENDING":
            return 0.0
        charged = self.holds and self.state != "COMPLETING"
        end = now if charged or self.end is None else self.end
        return max(0.0, end - self.start) * self.nodes


async def entries(slurm: Slurm, *terms: str, limit: float = LIMIT) -> list[QueueEntry]:
    """Jobs that match squeue's filters; empty if Slurm no longer knows the requested job."""
    mark = secrets.token_hex(8)
    form = "".join(mark + field for field in FIELDS)
    try:
        text = await slurm.output("squeue", "--noheader", f"--format={form}", *terms, limit=limit)
    except SlurmFailed as error:
        if "Invalid job id" in str(error):
            return []
        raise
    return list(parse(text, mark))


def parse(text: str, mark: str) -> Iterator[QueueEntry]:
    """Parse jobs from squeue's output, which has `mark` before every field."""
    words = [word.strip() for word in text.split(mark)[1:]]
    if len(words) % len(FIELDS):
        raise SlurmFailed("squeue's output is cut short; try again")
    for at in range(0, len(words), len(FIELDS)):
        yield _entry(*words[at : at + len(FIELDS)])


def _entry(  # one argument per field
    job: str, shown: str, state: str, uid: str, nodes: str, start: str, end: str, *texts: str
) -> QueueEntry:
    reason, names, gres, licences, account, comment = texts
    leader, plus, _ = shown.partition("+")
    return QueueEntry(
        job=int(job),
        leader=int(leader) if plus else int(job),
        state=plain_state(state),
        uid=int(uid),
        nodes=int(nodes),
        start=_time(start),
        end=_time(end),
        reason=reason,
        names=names,
        gres=gres,
        licences=licences,
        account="" if account == "(null)" else account,
        comment=comment,
    )


def plain_state(text: str) -> str:
    """The first word of `CANCELLED by 0`, `CANCELLED+` or `COMPLETING,CANCELLED`."""
    return text.replace(",", " ").split()[0].rstrip("+*").upper() if text.strip() else "UNKNOWN"


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


SINFO = ("sinfo", "--noheader", "--format=%P|%T|%D|%c|%m|%G|%X")
"""Partition, state, number of nodes; of each node: CPUs, megabytes, GRES, sockets."""
GPUS = re.compile(r"\bgpu:(?:[^:,(]+:)?(\d+)")
"""Matches the GPUs in a node's GRES, such as `gpu:a100:4(S:0-1),qpu:1`."""

UNUSABLE = ("down", "drain", "fail", "error", "future", "maint", "power")
"""State prefixes of nodes that take no work, including `draining` and `failing`.

`unknown` is not among them: all nodes are in it for some seconds after a restart of slurmctld."""


async def partition_kind(slurm: Slurm, partition: str | None) -> NodeKind:
    """What every node of a partition has, by default of the default one; only usable nodes count.

    If its nodes differ, each has at least this.
    """
    found = parse_partitions(await slurm.output(*SINFO))
    kinds = [kind for kind, default in found if (kind.name == partition if partition else default)]
    if not kinds:
        return NodeKind(count=0)
    return NodeKind(
        kinds[0].name,
        sum(each.count for each in kinds),
        min(each.cores for each in kinds),
        min(each.gpus for each in kinds),
        min(each.memory or 0 for each in kinds) or None,
        min(each.sockets for each in kinds),
    )


BILLED = re.compile(r"\bTRESBillingWeights=(\S+)")
MEMORY = re.compile(r"^SelectTypeParameters\s*=.*MEMORY", re.MULTILINE)
HIGHEST = re.compile(r"^PriorityFlags\s*=.*\bMAX_TRES\b", re.MULTILINE)


async def billing_weights(slurm: Slurm, partition: str) -> BillingWeights | None:
    """What Slurm charges in a partition; None if it has no weights, and so charges cores alone."""
    found = BILLED.search(await slurm.output("scontrol", "show", "partition", partition))
    if found is None or found[1] == "(null)":
        return None
    config = await slurm.output("scontrol", "show", "config")
    highest = HIGHEST.search(config) is not None
    weights = BillingWeights.parse(found[1], ignore_others=True, highest=highest)
    # jobs are charged for memory only where Slurm hands it out
    return weights if MEMORY.search(config) else replace(weights, memory=0.0)


def parse_partitions(text: str) -> Iterator[tuple[NodeKind, bool]]:
    """Yield usable nodes that are alike, named by their partition, and whether it is the default.

    A `+` follows a number that some of the nodes exceed.
    """
    for line in text.splitlines():
        name, state, *numbers = line.rsplit("|", 6)
        if not state.lower().startswith(UNUSABLE):
            count, cores, memory, gres, sockets = (each.removesuffix("+") for each in numbers)
            gpus = sum(map(int, GPUS.findall(gres)))
            size = int(memory) * 2**20 or None
            kind = NodeKind(
                name.removesuffix("*"), int(count), int(cores), gpus, size, max(1, int(sockets))
            )
            yield kind, name.endswith("*")
