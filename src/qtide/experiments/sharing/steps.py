"""The quantum steps of the replicas: short enough that an experiment with hundreds of jobs ends."""

from __future__ import annotations

from qtide import Target, quantum
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.independent import some_maximal_sets
from qtide.payloads.payload import Burst

ROUNDS = 3
"""Of the optimiser, which evaluates two points in each, and the best one at the end."""


async def circuits(graph: Graph, seed: int, target: Target | None = None) -> list[frozenset[int]]:
    """QAOA in circuits that are cut to fit five qubits, with few rounds of its optimiser."""
    from qtide.apps.colouring.cutting.options import CutOptions
    from qtide.apps.colouring.cutting.step import cut_circuits_step

    options = CutOptions(optimiser="spsa", rounds=ROUNDS)
    return await cut_circuits_step(graph, seed, options, target)


async def bursts(graph: Graph, seed: int) -> list[frozenset[int]]:
    """As many payloads that are only durations; the sets are enumerated."""
    for _ in range(2 * ROUNDS + 1):
        await quantum(Burst())
    return some_maximal_sets(graph, 1)
