"""Independent sets by an annealer: each read is a set, or nearly one."""

from __future__ import annotations

from qtide import quantum
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.steps.model import model_of, sets_in

READS = 100


async def annealing(graph: Graph, seed: int) -> list[frozenset[int]]:
    """The sets that the annealer has read; its own seed is the run's."""
    return sets_in(await quantum(model_of(graph), shots=READS))
