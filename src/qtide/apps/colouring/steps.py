"""Steps: ways to find independent sets; entry points add more."""

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
"""Takes a graph with edges and a seed, awaits phases, and returns sets that should be independent.

The sets are verified and repaired; better sets lead sooner to a good colouring. A step with a
parameter `target` receives the run's device.
"""

STEPS: Plugins[Step] = Plugins("qtide.sets", "way to find independent sets")


def step_for(name: str, target: Target | None) -> Step:
    """Load the step of that name and bind it to the run's device."""
    step: Callable[..., Awaitable[list[frozenset[int]]]] = STEPS.load(name)
    return partial(step, target=target) if "target" in signature(step).parameters else step


READS = 100


async def annealing(graph: Graph, seed: int) -> list[frozenset[int]]:
    """Return the sets that the annealer reads; it uses the run's seed, not `seed`."""
    return sets_in(await quantum(model_of(graph), shots=READS))


SHOTS = 100


async def atoms(graph: Graph, seed: int) -> list[frozenset[int]]:
    """Return the sets that neutral atoms show on a patch of the graph."""
    vertices: list[int] = await task(patch, graph, seed)
    found = sets_in(await quantum(model_of(graph.subgraph(vertices)), shots=SHOTS))
    return [frozenset(vertices[each] for each in one) for one in found]


MOST_TRIES = 24
"""Layouts tried for a patch; each takes about 50 ms."""


def patch(graph: Graph, seed: int) -> list[int]:
    """Choose vertices whose induced graph can be laid out: all if possible, otherwise greedily."""
    if graph.size <= MOST_ATOMS and _fits(graph):
        return list(range(graph.size))
    chosen: list[int] = []
    for vertex in _outwards(graph, seed)[:MOST_TRIES]:
        if len(chosen) < MOST_ATOMS and _fits(graph.subgraph([*chosen, vertex])):
            chosen.append(vertex)
    return sorted(chosen)


def _outwards(graph: Graph, seed: int) -> list[int]:
    """Order vertices outwards from a random one, so that the patch has many edges."""
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
"""Limits on the sets: graphs of 30 vertices seldom exceed MOST_EXACT; large graphs take long."""


async def exact(graph: Graph, seed: int) -> list[frozenset[int]]:
    """Return all maximal independent sets, or the first ones if there are very many."""
    limit = max(FEWEST, min(MOST_EXACT, WORK // graph.size**2))
    found: list[frozenset[int]] = await task(some_maximal_sets, graph, limit)
    return found


PENALTY = 2.0
"""Penalty for choosing both ends of an edge; a vertex gains 1, so an edge never pays."""


def model_of(graph: Graph) -> Any:
    """Build the model whose best samples are the largest independent sets."""
    import dimod

    linear = dict.fromkeys(range(graph.size), -1.0)
    return dimod.BinaryQuadraticModel(linear, dict.fromkeys(graph.edges, PENALTY), 0.0, "BINARY")


MOST_SETS = 64


def sets_in(samples: Any) -> list[frozenset[int]]:
    """Return the distinct sets of vertices that are 1 in the best samples."""
    sets = (frozenset(v for v, taken in each.items() if taken) for each in samples.samples())
    return list(dict.fromkeys(sets))[:MOST_SETS]
