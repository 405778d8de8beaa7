"""Independent sets by neutral atoms: joined atoms block each other.

Atoms lie in a plane, so only a unit-disk graph fits, and an emulator takes ten of them. Of a larger
or denser graph the atoms see a patch that fits. A set that is independent there is so in the graph
as well, where it is then filled up.
"""

from __future__ import annotations

import random

from qtide import quantum, task
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.steps.model import model_of, sets_in
from qtide.devices.atoms import MOST_ATOMS
from qtide.devices.layout import layout

SHOTS = 100
MOST_TRIES = 24
"""Layouts tried for a patch; each takes some 50 ms."""


async def atoms(graph: Graph, seed: int) -> list[frozenset[int]]:
    """The sets that the atoms have shown on a patch of the graph."""
    vertices: list[int] = await task(patch, graph, seed)
    found = sets_in(await quantum(model_of(graph.subgraph(vertices)), shots=SHOTS))
    return [frozenset(vertices[each] for each in one) for one in found]


def patch(graph: Graph, seed: int) -> list[int]:
    """Vertices whose induced graph can be laid out: all if possible, otherwise as they come."""
    if graph.size <= MOST_ATOMS and _fits(graph):
        return list(range(graph.size))
    chosen: list[int] = []
    for vertex in _outwards(graph, seed)[:MOST_TRIES]:
        if len(chosen) < MOST_ATOMS and _fits(graph.subgraph([*chosen, vertex])):
            chosen.append(vertex)
    return sorted(chosen)


def _outwards(graph: Graph, seed: int) -> list[int]:
    """The vertices by their distance from one of them; a patch of few edges would say little."""
    rest = list(range(graph.size))
    random.Random(seed).shuffle(rest)
    order: list[int] = []
    while rest:
        near = [v for v in rest if any(graph.neighbours[v] >> each & 1 for each in order)]
        order.append((near or rest)[0])
        rest.remove(order[-1])
        if len(order) == MOST_TRIES:
            break
    return order


def _fits(graph: Graph) -> bool:
    return layout(graph.size, frozenset(graph.edges)) is not None
