"""The circuits of a fragment for a gate device: with parameters, transpiled once per shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

from qtide.apps.colouring.cutting.fragment import Fragment, Wire
from qtide.apps.colouring.cutting.paulis import BASES, PREPARATIONS
from qtide.apps.colouring.qaoa.ansatz import Angles

PREPARE: Mapping[str, tuple[str, ...]] = {"0": (), "1": ("x",), "+": ("h",), "i": ("h", "s")}
TURN: Mapping[str, tuple[str, ...]] = {"Z": (), "X": ("h",), "Y": ("sdg", "h")}


def templates(fragment: Fragment, penalty: int, target: Target) -> list[Any]:
    """The fragment's circuits, transpiled: each preparation with each basis, basis fastest."""
    return list(_templates(_shape(fragment), penalty, target))


def bound(circuits: Sequence[Any], angles: Angles) -> list[Any]:
    """The circuits with these angles."""
    return [
        one.assign_parameters({each: float(angles[each.index]) for each in one.parameters})
        for one in circuits
    ]


class Target:
    """What the transpiler has to know of a device; equal if the devices are alike."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties = properties
        names = ("qubits", "connections", "gates")
        self._key = tuple(repr(properties[name]) for name in names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=256)
def _templates(fragment: Fragment, penalty: int, target: Target) -> tuple[Any, ...]:
    from qiskit.transpiler import generate_preset_pass_manager

    from qtide.client.target import target_of

    device = target_of({"name": "device", "properties": target.properties})
    passes = generate_preset_pass_manager(2, target=device, seed_transpiler=0)
    circuits = list(_circuits(fragment, penalty))
    return tuple(passes.run(circuits, num_processes=1))


def _shape(fragment: Fragment) -> Fragment:
    """The fragment without the numbers of its vertices and cuts, which its circuits do not need."""
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
    """The layers: exp(-iγC) with bits as (1 - Z) / 2, then exp(-iβX)."""
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
