"""Independent sets by enumeration, on a node."""

from __future__ import annotations

from qtide import task
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.independent import some_maximal_sets

MOST = 2_000
"""A graph of thirty vertices seldom has more maximal independent sets."""


async def exact(graph: Graph, seed: int) -> list[frozenset[int]]:
    """All maximal independent sets, or the first ones of very many."""
    found: list[frozenset[int]] = await task(some_maximal_sets, graph, MOST)
    return found
