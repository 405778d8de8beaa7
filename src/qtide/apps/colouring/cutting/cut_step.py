"""Find independent sets by cut QAOA circuits, simulated in a task or run on a device."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache

import numpy as np

from qtide import Target, task
from qtide.apps.colouring.cutting.cut_circuit import CutCircuit, Sampler
from qtide.apps.colouring.cutting.cut_device import qubits_of, sets_on_device
from qtide.apps.colouring.cutting.cut_plan import USUAL_BUDGET, CutBudget, CutPlan, plan_cuts
from qtide.apps.colouring.cutting.fragment import Frequencies
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.angles import descend, drive, spsa, start_angles
from qtide.apps.colouring.qaoa.ansatz import Angles
from qtide.apps.colouring.qaoa.qaoa_options import QaoaOptions, for_target, independent_sets
from qtide.core.errors import UsageError


@dataclass(frozen=True)
class CutOptions(QaoaOptions):
    """Options of a cut step; the device limits the qubits of a fragment."""

    budget: CutBudget = USUAL_BUDGET


USUAL = CutOptions()
ON_DEVICE = CutOptions(optimiser="spsa")

MOST_QUBITS = 14
"""Most qubits of a simulated fragment, whose circuits are all kept in memory."""

STEP = 1e-5
"""Step of numerical derivatives; exact values are smooth, and two of them take 50 µs."""


async def cut_step(graph: Graph, seed: int, options: CutOptions = USUAL) -> list[frozenset[int]]:
    """Find independent sets by simulating fragments that would fit the device."""
    plan = _plan(graph, options)
    if plan.qubits > MOST_QUBITS:
        raise UsageError(
            f"fragments are simulated for at most {MOST_QUBITS} qubits, not {plan.qubits}; "
            "name a smaller device, or run the circuits on it"
        )
    found: list[frozenset[int]] = await task(simulated_sets, plan, seed, options)
    return found


async def cut_circuits_step(
    graph: Graph, seed: int, options: CutOptions = ON_DEVICE, target: Target | None = None
) -> list[frozenset[int]]:
    """Find independent sets by running the fragments' circuits on the device.

    The cost of an evaluation is reported before the first one.
    """
    options = for_target(options, target)
    plan = _plan(graph, options)
    tell_once(plan, options.shots)
    return await sets_on_device(plan, seed, options)


@cache
def tell_once(plan: CutPlan, shots: int) -> None:
    """Write the cost of an evaluation to standard error, once per plan."""
    vertices = plan.partition.graph.size
    sys.stderr.write(f"{vertices} vertices in circuits: {plan.overhead(None, shots)}\n")


def _plan(graph: Graph, options: CutOptions) -> CutPlan:
    return plan_cuts(graph, qubits_of(options.device), options.depth, options.budget)


def simulated_sets(plan: CutPlan, seed: int, options: CutOptions) -> list[frozenset[int]]:
    """Optimise the angles, draw samples from the fragments, repair them."""
    graph = plan.partition.graph
    if not graph.edges:
        return [frozenset(range(graph.size))]
    simulation = CutSimulation(
        CutCircuit(plan.partition, plan.depth, options.penalty),
        options.shots,
        np.random.default_rng(seed),
    )
    frequencies = simulation.frequencies(_angles(simulation, seed, options))
    counts = Sampler(simulation.circuit, frequencies).draw(options.samples, simulation.rng)
    return independent_sets(graph, counts, options.sets)


@dataclass(frozen=True)
class CutSimulation:
    """A cut circuit evaluated exactly (0 shots), or with the noise of `shots` per circuit."""

    circuit: CutCircuit
    shots: int
    rng: np.random.Generator

    def frequencies(self, angles: Angles) -> list[Frequencies]:
        """Frequencies of all circuits, fragment by fragment."""
        if not self.shots:
            return self.circuit.probabilities(angles)
        return self.circuit.sampled(angles, self.shots, self.rng)

    def value(self, angles: Angles) -> float:
        """The expectation value."""
        return self.circuit.expectation(self.frequencies(angles))

    def gradient(self, angles: Angles) -> tuple[float, Angles]:
        """Return the exact value and its slopes, regardless of the shots."""
        nearby = STEP * np.eye(len(angles))
        slopes = [self._exact(angles + at) - self._exact(angles - at) for at in nearby]
        return self._exact(angles), np.array(slopes) / (2 * STEP)

    def _exact(self, angles: Angles) -> float:
        return self.circuit.expectation(self.circuit.probabilities(angles))


def _angles(simulation: CutSimulation, seed: int, options: CutOptions) -> Angles:
    graph = simulation.circuit.graph
    start = start_angles(graph, options.depth, options.penalty)
    match options.optimiser:
        case "gradient":
            return descend(simulation.gradient, start)
        case "spsa":
            return drive(spsa(start, options.rounds, seed, graph.size), simulation.value)
    return start
