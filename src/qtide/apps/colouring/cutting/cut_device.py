"""Find independent sets by cut QAOA on a gate device: build, run and count fragments' circuits.

The angles are circuit parameters, so circuits are transpiled only once per fragment shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from qtide import quantum, task, together
from qtide.apps.colouring.cutting.cut_circuit import CutCircuit, Sampler
from qtide.apps.colouring.cutting.cut_plan import CutPlan, GraphPartition
from qtide.apps.colouring.cutting.fragment import BASES, PREPARATIONS, Fragment, Frequencies, Wire
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.angles import Evaluations, spsa, start_angles
from qtide.apps.colouring.qaoa.ansatz import Angles
from qtide.apps.colouring.qaoa.qaoa_options import QaoaOptions, independent_sets
from qtide.backends.payloads.payload import PayloadRefused
from qtide.backends.payloads.shots import Shots
from qtide.core.errors import PhaseError, UsageError


async def sets_on_device(plan: CutPlan, seed: int, options: QaoaOptions) -> list[frozenset[int]]:
    """Optimise the angles on the device, then derive sets from its answers at the best ones."""
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


def whole_circuit(graph: Graph, options: QaoaOptions) -> CutPlan:
    """Return the plan without cuts; refuse a graph with more vertices than qubits."""
    qubits = qubits_of(options.device)
    if graph.size > qubits:
        raise UsageError(
            f"the device has {qubits} qubits and the graph {graph.size} vertices; cut the circuit"
        )
    return CutPlan(GraphPartition(graph, (), (tuple(range(graph.size)),)), options.depth)


def qubits_of(device: str | Mapping[str, Any]) -> int:
    """Number of qubits of a device."""
    return len(properties_of(device)["qubits"])


def properties_of(device: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties of a device that takes circuits; refuse any other."""
    from qtide.backends.devices.device import make, takers

    properties = make(device, {}).properties() if isinstance(device, str) else device
    if "gates" not in properties:
        raise UsageError(f"circuits need a device that takes them{takers('qpy')}")
    return properties


Batches = list[list[Any]]
"""The circuits of each fragment."""


def prepare(plan: CutPlan, options: QaoaOptions) -> tuple[Angles, Batches]:
    """Compute the start angles and transpile all circuits, on a node."""
    target = CutTarget(properties_of(options.device))
    circuits = [templates(each, options.penalty, target) for each in plan.fragments]
    return start_angles(plan.partition.graph, plan.depth, options.penalty), circuits


TRIES = 3
"""Attempts to run a fragment alone before the step fails."""


class AnswerIncomplete(PhaseError):  # noqa: N818 - what happened
    """The device left out circuits or shots."""


class DeviceRun:
    """Evaluates one cut circuit on the device."""

    def __init__(self, circuit: CutCircuit, batches: Batches, options: QaoaOptions) -> None:
        self.circuit = circuit
        self._batches = batches
        self._shots = options.shots
        self._spread = options.spread

    async def optimised(self, search: Evaluations) -> Angles:
        """Run an optimiser on values from the device."""
        try:
            angles = next(search)
            while True:
                frequencies = await self.frequencies(angles)
                angles = search.send(self.circuit.expectation(frequencies))
        except StopIteration as end:
            found: Angles = end.value
            return found

    async def frequencies(self, angles: Angles) -> list[Frequencies]:
        """Run all circuits as one payload; if it fails, run each fragment alone.

        On a class of devices, each fragment is a payload of its own from the start: one that fails,
        or waits for a device that goes down, runs elsewhere, and the others are not repeated.
        """
        batches = [bound(batch, angles) for batch in self._batches]
        if self._spread and len(batches) > 1:
            apart = await together(*(self._alone(batch) for batch in batches))
            pairs = zip(self.circuit.fragments, apart, strict=True)
            return [counted(fragment, shots) for fragment, shots in pairs]
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
        """Run one fragment in up to TRIES attempts."""
        for _ in range(TRIES - 1):
            try:
                return await self._run(batch)
            except PayloadRefused:
                raise
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
    """Compute the frequencies of a fragment's bit strings, by preparation and basis."""
    strings = 1 << len(fragment.wires)
    rows = [np.bincount(each.values, minlength=strings) / len(each) for each in answers]
    return np.array(rows).reshape(-1, 3 ** len(fragment.leaving), strings)


class CutTarget:
    """The device properties that the transpiler needs; equal for devices that are alike."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties = properties
        names = ("qubits", "connections", "gates")
        self._key = tuple(repr(properties[name]) for name in names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CutTarget) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def templates(fragment: Fragment, penalty: int, target: CutTarget) -> list[Any]:
    """Transpile the fragment's circuits: each preparation with each basis, basis fastest."""
    return list(_templates(_shape(fragment), penalty, target))


def bound(circuits: Sequence[Any], angles: Angles) -> list[Any]:
    """Bind the circuits' parameters to these angles."""
    return [
        one.assign_parameters({each: float(angles[each.index]) for each in one.parameters})
        for one in circuits
    ]


@lru_cache(maxsize=256)
def _templates(fragment: Fragment, penalty: int, target: CutTarget) -> tuple[Any, ...]:
    from qiskit.transpiler import generate_preset_pass_manager

    from qtide.backends.client.backend import target_of

    device = target_of({"name": "device", "properties": target.properties})
    passes = generate_preset_pass_manager(2, target=device, seed_transpiler=0)
    circuits = list(_circuits(fragment, penalty))
    return tuple(passes.run(circuits, num_processes=1))


def _shape(fragment: Fragment) -> Fragment:
    """Drop the numbers of vertices and cuts, which the circuits do not need."""
    wires = [
        Wire(place, _flag(wire.enters), _flag(wire.leaves))
        for place, wire in enumerate(fragment.wires)
    ]
    return replace(fragment, wires=tuple(wires))


def _flag(cut: int | None) -> int | None:
    return None if cut is None else 0


def _circuits(fragment: Fragment, penalty: int) -> Iterator[Any]:
    body = _body(fragment, penalty)
    for states in product(PREPARATIONS, repeat=len(fragment.entering)):
        for bases in product(BASES, repeat=len(fragment.leaving)):
            yield _circuit(fragment, body, states, bases)


PREPARE: Mapping[str, tuple[str, ...]] = {"0": (), "1": ("x",), "+": ("h",), "i": ("h", "s")}
TURN: Mapping[str, tuple[str, ...]] = {"Z": (), "X": ("h",), "Y": ("sdg", "h")}


def _circuit(fragment: Fragment, body: Any, states: Sequence[str], bases: Sequence[str]) -> Any:
    from qiskit import QuantumCircuit

    size = len(fragment.wires)
    circuit = QuantumCircuit(size, size)
    circuit.h([wire for wire in range(size) if wire not in fragment.entering])
    _apply(circuit, PREPARE, fragment.entering, states)
    circuit.compose(body, inplace=True)
    _apply(circuit, TURN, fragment.leaving, bases)
    circuit.measure(range(size), range(size))
    return circuit


def _apply(
    circuit: Any, table: Mapping[str, tuple[str, ...]], wires: Sequence[int], names: Sequence[str]
) -> None:
    for wire, name in zip(wires, names, strict=True):
        for gate in table[name]:
            getattr(circuit, gate)(wire)


def _body(fragment: Fragment, penalty: int) -> Any:
    """Build the layers: exp(-iγC) with bits as (1 - Z) / 2, then exp(-iβX)."""
    from qiskit import QuantumCircuit
    from qiskit.circuit import ParameterVector

    depth = len(fragment.layers)
    angles = ParameterVector("angles", 2 * depth)
    circuit = QuantumCircuit(len(fragment.wires))
    for number, layer in enumerate(fragment.layers):
        fields = dict.fromkeys(layer.vertices, 1.0)
        for a, b in layer.edges:
            circuit.rzz(angles[number] * (penalty / 2), a, b)
            for wire in (a, b):
                fields[wire] = fields.get(wire, 0.0) - penalty / 2
        for wire, field in fields.items():
            if field:
                circuit.rz(angles[number] * field, wire)
        for wire in layer.mixed:
            circuit.rx(2 * angles[depth + number], wire)
    return circuit
