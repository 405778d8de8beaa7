"""The same cut circuit by qiskit-addon-cutting, on Aer: cut and transpiled once, then bound.

Its wire cut is a quasi-probability decomposition of eight terms, so one cut takes 8 + 8 circuits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from qiskit import QuantumCircuit, transpile
from qiskit.circuit import ParameterVector
from qiskit.quantum_info import PauliList
from qiskit_addon_cutting import (
    cut_wires,
    expand_observables,
    generate_cutting_experiments,
    partition_problem,
    reconstruct_expectation_values,
)
from qiskit_addon_cutting.instructions import CutWire
from qiskit_aer.primitives import SamplerV2

from qtide.apps.colouring.cutting.cut_plan import GraphPartition
from qtide.apps.colouring.qaoa.ansatz import PENALTY, Angles


class Addon:
    """One separator and depth one, as the addon's guide does it."""

    def __init__(self, partition: GraphPartition, shots: int, seed: int = 0) -> None:
        graph = partition.graph
        terms = _ising(graph.size, graph.edges)
        names = PauliList([_label(graph.size, places) for places, _ in terms])
        self._weights = np.array([weight for _, weight in terms])
        self._constant = -graph.size / 2 + PENALTY * len(graph.edges) / 4
        whole = _marked(partition, terms)
        cut = cut_wires(whole)
        problem = partition_problem(circuit=cut, observables=expand_observables(names, whole, cut))
        self._observables = problem.subobservables
        circuits, self._coefficients = generate_cutting_experiments(
            problem.subcircuits, self._observables, num_samples=np.inf
        )
        self._circuits = {
            label: transpile(each, basis_gates=BASIS, num_processes=1)
            for label, each in circuits.items()
        }
        options = {"backend_options": {"max_parallel_threads": 1}}
        self._sampler = SamplerV2(default_shots=shots, seed=seed, options=options)

    @property
    def circuits(self) -> int:
        """How many circuits one expectation value takes."""
        return sum(len(each) for each in self._circuits.values())

    def expectation(self, angles: Angles) -> float:
        """Bind, run, put together again."""
        results = {
            label: self._sampler.run([_bound(each, angles) for each in circuits]).result()
            for label, circuits in self._circuits.items()
        }
        found = reconstruct_expectation_values(results, self._coefficients, self._observables)
        return float(self._constant + self._weights @ np.array(found))


BASIS = ["h", "x", "s", "sdg", "rx", "rz", "rzz", "measure", "reset"]

Terms = list[tuple[tuple[int, ...], float]]


def _ising(size: int, edges: tuple[tuple[int, int], ...]) -> Terms:
    """The cost by products of Z, with bits as (1 - Z) / 2."""
    fields = np.full(size, 0.5)
    for edge in edges:
        fields[list(edge)] -= PENALTY / 4
    singles: Terms = [((vertex,), float(field)) for vertex, field in enumerate(fields)]
    return singles + [(edge, PENALTY / 4) for edge in edges]


def _label(size: int, places: tuple[int, ...]) -> str:
    return "".join("Z" if vertex in places else "I" for vertex in reversed(range(size)))


def _marked(partition: GraphPartition, terms: Terms) -> Any:
    """The whole circuit, with a mark where the separator's wire is cut."""
    (separator,) = partition.separators
    gamma, beta = ParameterVector("angles", 2)
    circuit = QuantumCircuit(partition.graph.size)
    circuit.h(range(partition.graph.size))
    for number, part in enumerate(partition.parts):
        if number:
            circuit.append(CutWire(), [separator])
        for places, weight in terms:
            here = {*part} | ({separator} if not number else set())
            if {*places} & {*part} or {*places} <= here:
                turn = circuit.rz if len(places) == 1 else circuit.rzz
                turn(2 * weight * gamma, *places)
    circuit.rx(2 * beta, range(partition.graph.size))
    return circuit


def _bound(circuit: Any, angles: Angles) -> Any:
    return circuit.assign_parameters({each: angles[each.index] for each in circuit.parameters})
