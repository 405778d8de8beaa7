"""Programs of commands, for tests on clusters."""

from __future__ import annotations

import sys
from pathlib import Path

from qtide import CommandResult, TimedOut, classical, command, program

RANKS = Path(__file__).with_name("ranks.py")


@program
async def chain(marks: str = "", nodes: int = 3) -> list[str]:
    """Write a file on a node, count its lines on others, then start an MPI program on all."""
    first = await command("sh", "-c", "printf '1\\n2\\n' > lines", writes="lines")
    counts = await classical(
        *(command("wc", "-l", "{lines}", reads=[first.files["lines"]]) for _ in range(3))
    )
    more = ("lose", marks) if marks else ("sum",)
    ranks = await command(sys.executable, RANKS, *more).on(nodes)
    return [each.output for each in (*counts, ranks)]


@program
async def limited(mark: str, seconds: float) -> str:
    """An MPI program that takes too long, then one on the same nodes that does not."""
    try:
        await command(sys.executable, RANKS, "sleep", mark).on(2).within(seconds)
    except TimedOut:
        return (await command("echo", "in time")).output
    return "not ended"


@program
async def endless(mark: str) -> CommandResult:
    """An MPI program that sleeps."""
    return await command(sys.executable, RANKS, "sleep", mark).on(2, ranks_per_node=2)
