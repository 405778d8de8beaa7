"""Find independent sets by QAOA, simulated in a task or run as whole circuits on a device."""

from __future__ import annotations

import numpy as np

from qtide import Target, task
from qtide.apps.colouring.cutting.cut_device import sets_on_device, whole_circuit
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.angles import descend, drive, spsa, start_angles
from qtide.apps.colouring.qaoa.ansatz import Angles, Ansatz
from qtide.apps.colouring.qaoa.qaoa_options import QaoaOptions, for_target, independent_sets

USUAL = QaoaOptions()
ON_DEVICE = QaoaOptions(optimiser="spsa")


async def qaoa_step(graph: Graph, seed: int, options: QaoaOptions = USUAL) -> list[frozenset[int]]:
    """Find independent sets of a graph by simulating the circuit."""
    found: list[frozenset[int]] = await task(simulated_sets, graph, seed, options)
    return found


async def qaoa_circuits_step(
    graph: Graph, seed: int, options: QaoaOptions = ON_DEVICE, target: Target | None = None
) -> list[frozenset[int]]:
    """Find independent sets of a graph that fits the device by running circuits on it."""
    options = for_target(options, target)
    return await sets_on_device(whole_circuit(graph, options), seed, options)


def simulated_sets(graph: Graph, seed: int, options: QaoaOptions) -> list[frozenset[int]]:
    """Simulate QAOA: optimise the angles, draw samples, repair them."""
    if not graph.edges:
        return [frozenset(range(graph.size))]
    ansatz = Ansatz(graph, options.penalty)
    drawn = ansatz.samples(_angles(ansatz, seed, options), options.samples, seed)
    strings, counts = np.unique(drawn, return_counts=True)
    often = dict(zip(strings.tolist(), counts.tolist(), strict=True))
    return independent_sets(graph, often, options.sets)


def _angles(ansatz: Ansatz, seed: int, options: QaoaOptions) -> Angles:
    start = start_angles(ansatz.graph, options.depth, options.penalty)
    match options.optimiser:
        case "gradient":
            return descend(ansatz.gradient, start)
        case "spsa":
            search = spsa(start, options.rounds, seed, ansatz.graph.size)
            return drive(search, ansatz.expectation)
    return start
