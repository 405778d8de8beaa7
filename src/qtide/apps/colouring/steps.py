"""Steps: the ways to find independent sets. Further ones are found by entry points."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import signature
from typing import Any

from qtide import Target, quantum, task
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.independent import some_maximal_sets
from qtide.backends.devices.atoms import MOST_ATOMS, layout
from qtide.core.plugins import Plugins

Step = Callable[[Graph, int], Awaitable[list[frozenset[int]]]]
"""Takes a graph with edges and a seed, awaits phases, and gives sets that should be independent.

Whatever it gives is verified; the better its sets are, the sooner a good colouring is found. A step
with a parameter `target` is given the device of the run.
"""

STEPS: Plugins[Step] = Plugins("qtide.sets", "way to find independent sets")


def step_for(name: str, target: Target | None) -> Step:
    """The step of that name, for the device of the run."""
    step: Callable[..., Awaitable[list[frozenset[int]]]] = STEPS.load(name)
    return partial(step, target=target) if "target" in signature(step).parameters else step


READS = 100


async def annealing(graph: Graph, seed: int) -> list[frozenset[int]]:
    """The sets that the annealer has read; its own seed is the run's."""
    return sets_in(await quantum(model_of(graph), shots=READS))


SHOTS = 100


async def atoms(graph: Graph, seed: int) -> list[frozenset[int]]:
    """The sets that the atoms have shown on a patch of the graph."""
    vertices: list[int] = await task(patch, graph, seed)
    found = sets_in(await quantum(model_of(graph.subgraph(vertices)), shots=SHOTS))
    return [frozenset(vertices[each] for each in one) for one in found]


MOST_TRIES = 24
"""Layouts tried for a patch; each takes some 50 ms."""


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


FEWEST, MOST_EXACT, WORK = 16, 2_000, 2_000_000
"""A graph of thirty vertices seldom has more than the most; each set of a large one takes long."""


async def exact(graph: Graph, seed: int) -> list[frozenset[int]]:
    """All maximal independent sets, or the first ones of very many."""
    limit = max(FEWEST, min(MOST_EXACT, WORK // graph.size**2))
    found: list[frozenset[int]] = await task(some_maximal_sets, graph, limit)
    return found


PENALTY = 2.0
"""For both ends of an edge; each vertex gains 1, so an edge never pays."""


def model_of(graph: Graph) -> Any:
    """The model whose best samples are the largest independent sets."""
    import dimod

    linear = dict.fromkeys(range(graph.size), -1.0)
    return dimod.BinaryQuadraticModel(linear, dict.fromkeys(graph.edges, PENALTY), 0.0, "BINARY")


MOST_SETS = 64


def sets_in(samples: Any) -> list[frozenset[int]]:
    """The vertices that are 1 in the best samples, each set once."""
    sets = (frozenset(v for v, taken in each.items() if taken) for each in samples.samples())
    return list(dict.fromkeys(sets))[:MOST_SETS]
