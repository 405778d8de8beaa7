"""Independent sets by enumeration, on a node."""

from __future__ import annotations

from qtide import task
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.independent import some_maximal_sets

FEWEST, MOST, WORK = 16, 2_000, 2_000_000
"""A graph of thirty vertices seldom has more than the most; each set of a large one takes long."""


async def exact(graph: Graph, seed: int) -> list[frozenset[int]]:
    """All maximal independent sets, or the first ones of very many."""
    limit = max(FEWEST, min(MOST, WORK // graph.size**2))
    found: list[frozenset[int]] = await task(some_maximal_sets, graph, limit)
    return found
