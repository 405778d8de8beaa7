"""A device as Qiskit's transpiler needs it: which gate can act on which qubits."""

from __future__ import annotations

from typing import Any

from qiskit.circuit import Delay, IfElseOp, Parameter
from qiskit.circuit.library.standard_gates import get_standard_gate_name_mapping
from qiskit.transpiler import Target

from qtide.errors import UsageError

ALWAYS = ("id", "measure", "reset")
"""What every device takes without listing it."""

Loci = dict[tuple[int, ...], None]


def target_of(device: dict[str, Any]) -> Target:
    """The target of a device that takes Qiskit circuits."""
    properties = device["properties"]
    if "qpy" not in properties.get("formats", ()):
        raise UsageError(
            f"the device {device['name']!r} takes no Qiskit circuits; "
            f"it takes: {', '.join(properties.get('formats', ())) or 'nothing, as it is down'}"
        )
    size = len(properties["qubits"])
    target = Target(f"{device['name']} of qtide", num_qubits=size)
    known = get_standard_gate_name_mapping()
    singles: Loci = {(qubit,): None for qubit in range(size)}
    pairs = _pairs(properties)
    for name in dict.fromkeys((*properties["gates"], *ALWAYS)):
        gate = known[name]
        loci = {1: singles, 2: pairs}.get(gate.num_qubits)
        target.add_instruction(gate, None if loci is None else dict(loci), name=name)
    target.add_instruction(Delay(Parameter("time")), dict(singles))
    target.add_instruction(IfElseOp, name="if_else")
    return target


def _pairs(properties: dict[str, Any]) -> Loci | None:
    """Connected qubits, in both directions; None if all are connected to all."""
    place = {name: number for number, name in enumerate(properties["qubits"])}
    ways = [(place[one], place[other]) for one, other in properties["connections"]]
    loci: Loci = dict.fromkeys([*ways, *((other, one) for one, other in ways)])
    return None if len(loci) == len(place) * (len(place) - 1) else loci
