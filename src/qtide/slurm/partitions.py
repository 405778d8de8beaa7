"""Slurm's partitions as sinfo prints them: how many nodes can take work."""

from __future__ import annotations

from collections.abc import Iterator

from qtide.slurm.commands import Slurm

SINFO = ("sinfo", "--noheader", "--format=%P|%T|%D")

UNUSABLE = ("down", "drain", "fail", "error", "unknown", "future", "maint", "power")
"""Prefixes of the states of nodes that take no work, `draining` and `failing` included."""


async def partition_size(slurm: Slurm, partition: str | None) -> int:
    """How many nodes of a partition, or of the default one, can take work."""
    found = parse(await slurm.output(*SINFO))
    return sum(
        nodes for name, default, nodes in found if (name == partition if partition else default)
    )


def parse(text: str) -> Iterator[tuple[str, bool, int]]:
    """The partition, whether it is the default, and how many of its nodes are usable."""
    for line in text.splitlines():
        name, state, nodes = line.rsplit("|", 2)
        if not state.lower().startswith(UNUSABLE):
            yield name.removesuffix("*"), name.endswith("*"), int(nodes)
