"""Independent sets by cut QAOA: fragments simulated in a task, or as circuits on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qtide import task
from qtide.apps.colouring.cutting.circuit import CutCircuit
from qtide.apps.colouring.cutting.device import qubits_of, sets_on_device
from qtide.apps.colouring.cutting.options import CutOptions
from qtide.apps.colouring.cutting.plan import Plan, plan_cuts
from qtide.apps.colouring.cutting.reduction import Frequencies
from qtide.apps.colouring.cutting.sampler import Sampler
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.ansatz import Angles
from qtide.apps.colouring.qaoa.optimisers import descend, drive, spsa
from qtide.apps.colouring.qaoa.sets import independent_sets
from qtide.apps.colouring.qaoa.transfer import start_angles

USUAL = CutOptions()
ON_DEVICE = CutOptions(optimiser="spsa")

STEP = 1e-5
"""Of numerical derivatives: exact values are smooth, and two of them cost 50 µs."""


async def cut_step(graph: Graph, seed: int, options: CutOptions = USUAL) -> list[frozenset[int]]:
    """Independent sets of a graph, by simulated fragments that would fit the device."""
    found: list[frozenset[int]] = await task(simulated_sets, _plan(graph, options), seed, options)
    return found


async def cut_circuits_step(
    graph: Graph, seed: int, options: CutOptions = ON_DEVICE
) -> list[frozenset[int]]:
    """Independent sets of a graph, by the circuits of fragments that run on the device."""
    return await sets_on_device(_plan(graph, options), seed, options)


def _plan(graph: Graph, options: CutOptions) -> Plan:
    return plan_cuts(graph, qubits_of(options.device), options.depth, options.budget)


def simulated_sets(plan: Plan, seed: int, options: CutOptions) -> list[frozenset[int]]:
    """Optimise the angles, draw samples from the fragments, repair them."""
    graph = plan.partition.graph
    if not graph.edges:
        return [frozenset(range(graph.size))]
    simulation = Simulation(
        CutCircuit(plan.partition, plan.depth, options.penalty),
        options.shots,
        np.random.default_rng(seed),
    )
    frequencies = simulation.frequencies(_angles(simulation, seed, options))
    counts = Sampler(simulation.circuit, frequencies).draw(options.samples, simulation.rng)
    return independent_sets(graph, counts, options.sets)


@dataclass(frozen=True)
class Simulation:
    """A cut circuit evaluated exactly, or with the noise of so many shots per circuit."""

    circuit: CutCircuit
    shots: int
    rng: np.random.Generator

    def frequencies(self, angles: Angles) -> list[Frequencies]:
        """Of all circuits of all fragments."""
        if not self.shots:
            return self.circuit.probabilities(angles)
        return self.circuit.sampled(angles, self.shots, self.rng)

    def value(self, angles: Angles) -> float:
        """The expectation value."""
        return self.circuit.expectation(self.frequencies(angles))

    def gradient(self, angles: Angles) -> tuple[float, Angles]:
        """Exact value and slopes, whatever the shots."""
        nearby = STEP * np.eye(len(angles))
        slopes = [self._exact(angles + at) - self._exact(angles - at) for at in nearby]
        return self._exact(angles), np.array(slopes) / (2 * STEP)

    def _exact(self, angles: Angles) -> float:
        return self.circuit.expectation(self.circuit.probabilities(angles))


def _angles(simulation: Simulation, seed: int, options: CutOptions) -> Angles:
    graph = simulation.circuit.graph
    start = start_angles(graph, options.depth, options.penalty)
    match options.optimiser:
        case "gradient":
            return descend(simulation.gradient, start)
        case "spsa":
            return drive(spsa(start, options.rounds, seed, graph.size), simulation.value)
    return start
