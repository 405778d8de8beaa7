"""A cut circuit on a device: one batch of circuits per evaluation, through quantum phases.

A circuit that is not cut is a plan of one fragment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from qtide import quantum, task
from qtide.apps.colouring.cutting.circuit import CutCircuit
from qtide.apps.colouring.cutting.circuits import Target, bound, templates
from qtide.apps.colouring.cutting.fragment import Fragment
from qtide.apps.colouring.cutting.partition import Partition
from qtide.apps.colouring.cutting.plan import Plan
from qtide.apps.colouring.cutting.reduction import Frequencies
from qtide.apps.colouring.cutting.sampler import Sampler
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.ansatz import Angles
from qtide.apps.colouring.qaoa.optimisers import Evaluations, spsa
from qtide.apps.colouring.qaoa.options import QaoaOptions
from qtide.apps.colouring.qaoa.sets import independent_sets
from qtide.apps.colouring.qaoa.transfer import start_angles
from qtide.errors import PhaseError, UsageError
from qtide.payloads.payload import PayloadRefused
from qtide.payloads.shots import Shots

TRIES = 3
"""How often a fragment is run alone before its failure is the step's."""

Batches = list[list[Any]]
"""The circuits of each fragment."""


class AnswerIncomplete(PhaseError):  # noqa: N818 - what happened
    """The device has left out circuits or shots."""


def properties_of(device: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Qubits, connections and gates of a device that takes circuits."""
    from qtide.devices.kinds import make, takers

    properties = make(device, {}).properties() if isinstance(device, str) else device
    if "gates" not in properties:
        raise UsageError(f"circuits need a device that takes them{takers('qpy')}")
    return properties


def qubits_of(device: str | Mapping[str, Any]) -> int:
    """How many qubits a device has."""
    return len(properties_of(device)["qubits"])


def whole_circuit(graph: Graph, options: QaoaOptions) -> Plan:
    """The plan that cuts nothing."""
    qubits = qubits_of(options.device)
    if graph.size > qubits:
        raise UsageError(
            f"the device has {qubits} qubits and the graph {graph.size} vertices; cut the circuit"
        )
    return Plan(Partition(graph, (), (tuple(range(graph.size)),)), options.depth)


async def sets_on_device(plan: Plan, seed: int, options: QaoaOptions) -> list[frozenset[int]]:
    """Find angles by the device's answers, then sets by its answers to the best ones."""
    _check(options)
    graph = plan.partition.graph
    if not graph.edges:
        return [frozenset(range(graph.size))]
    prepared = await task(prepare, plan, options)
    run = DeviceRun(CutCircuit(plan.partition, plan.depth, options.penalty), prepared[1], options)
    angles = prepared[0]
    if options.optimiser == "spsa":
        search = spsa(angles, options.rounds, seed, graph.size)
        angles = await run.optimised(search)
    sampler = Sampler(run.circuit, await run.frequencies(angles))
    counts = sampler.draw(options.samples, np.random.default_rng(seed))
    return independent_sets(graph, counts, options.sets)


def _check(options: QaoaOptions) -> None:
    if options.optimiser == "gradient":
        raise UsageError("circuits on a device have no gradient; choose the optimiser spsa or none")
    if not options.shots:
        raise UsageError("a device is not exact; give the number of shots")


def prepare(plan: Plan, options: QaoaOptions) -> tuple[Angles, Batches]:
    """What a node does before: angles to start from, and all circuits transpiled."""
    target = Target(properties_of(options.device))
    circuits = [templates(each, options.penalty, target) for each in plan.fragments]
    return start_angles(plan.partition.graph, plan.depth, options.penalty), circuits


class DeviceRun:
    """The evaluations of one cut circuit."""

    def __init__(self, circuit: CutCircuit, batches: Batches, options: QaoaOptions) -> None:
        self.circuit = circuit
        self._batches = batches
        self._shots = options.shots

    async def optimised(self, search: Evaluations) -> Angles:
        """Run an optimiser on the values that the device gives."""
        try:
            angles = next(search)
            while True:
                frequencies = await self.frequencies(angles)
                angles = search.send(self.circuit.expectation(frequencies))
        except StopIteration as end:
            found: Angles = end.value
            return found

    async def frequencies(self, angles: Angles) -> list[Frequencies]:
        """All circuits as one payload; if it fails, each fragment alone."""
        batches = [bound(batch, angles) for batch in self._batches]
        try:
            answers = await self._run([each for batch in batches for each in batch])
        except PayloadRefused:
            raise
        except PhaseError:
            answers = [shots for batch in batches for shots in await self._alone(batch)]
        found, at = [], 0
        for fragment, batch in zip(self.circuit.fragments, batches, strict=True):
            found.append(counted(fragment, answers[at : at + len(batch)]))
            at += len(batch)
        return found

    async def _alone(self, batch: list[Any]) -> list[Shots]:
        """One fragment, several times if need be."""
        for _ in range(TRIES - 1):
            try:
                return await self._run(batch)
            except PhaseError:
                continue
        return await self._run(batch)

    async def _run(self, circuits: list[Any]) -> list[Shots]:
        answers: list[Shots] = await quantum(circuits, shots=self._shots)
        if len(answers) != len(circuits) or not all(len(each) for each in answers):
            raise AnswerIncomplete(
                f"the device was given {len(circuits)} circuits and has answered {len(answers)}"
            )
        return answers


def counted(fragment: Fragment, answers: Sequence[Shots]) -> Frequencies:
    """The frequencies of a fragment's bit strings, by preparation and basis."""
    strings = 1 << len(fragment.wires)
    rows = [np.bincount(each.values, minlength=strings) / len(each) for each in answers]
    return np.array(rows).reshape(-1, 3 ** len(fragment.leaving), strings)
