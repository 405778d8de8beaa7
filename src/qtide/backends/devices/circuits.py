"""Circuits on a gate device: which it refuses, how long they are, and those of IQM as Qiskit's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from qtide.backends.devices.chip import ALWAYS, OPERATIONS, Chip
from qtide.backends.payloads.document import brief, refuse
from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation

Gates = dict[str, tuple[int, int]]
"""Number of qubits and of parameters of each gate, by Qiskit's name."""
Register = tuple[str, int]

DEEPEST = 10
"""The deepest allowed nesting of branches."""


def check_circuit(circuit: Any, number: int, chip: Chip, gates: Gates, most: int) -> None:
    """Refuse a circuit that is too long or needs gates, qubits or connections the chip lacks."""
    where = f"circuit {number}"
    if circuit.num_qubits > len(chip.qubits):
        refuse(where, f"it has {circuit.num_qubits} qubits, the device {len(chip.qubits)}")
    if circuit.parameters:
        names = ", ".join(sorted(one.name for one in circuit.parameters)[:3])
        refuse(where, f"parameters have no value: {brief(names)}")
    if circuit.num_identifiers:
        refuse(where, "classical variables are not supported")
    registers(circuit, number)
    check = _Check(chip, gates | ALWAYS, most)
    check.block(circuit, range(circuit.num_qubits), where, DEEPEST)
    if not check.measures:
        refuse(where, "nothing is measured")


def registers(circuit: Any, number: int) -> list[Register]:
    """The classical registers; without any, the bits form one register, as in Qiskit's counts."""
    if not circuit.cregs and circuit.num_clbits:
        return [("", circuit.num_clbits)]
    bits = [circuit.find_bit(bit).index for register in circuit.cregs for bit in register]
    if bits != list(range(circuit.num_clbits)):
        refuse(f"circuit {number}", "every classical bit has to be in one register, in order")
    return [(register.name, register.size) for register in circuit.cregs if register.size]


class _Check:
    """Checks a Qiskit circuit and its branches."""

    def __init__(self, chip: Chip, gates: Gates, most: int) -> None:
        self._chip = chip
        self._gates = gates
        self._most = most
        self._seen = 0
        self.measures = False

    def block(self, block: Any, places: Sequence[int], where: str, depth: int) -> None:
        """Check a block; `places` gives the chip's qubit for each qubit of the block."""
        if block.num_qubits != len(places):
            refuse(where, f"a branch for {block.num_qubits} qubits acts on {len(places)}")
        self._seen += len(block.data)
        if self._seen > self._most:
            refuse(where, f"the circuit has more than {self._most} instructions")
        place = dict(zip(block.qubits, places, strict=True))
        for index, instruction in enumerate(block.data):
            qubits = [place[qubit] for qubit in instruction.qubits]
            self._instruction(instruction, qubits, f"{where}, instruction {index}", depth)

    def _instruction(self, instruction: Any, qubits: list[int], where: str, depth: int) -> None:
        name = instruction.name
        if name == "if_else" and depth:
            for block in instruction.operation.blocks:
                self.block(block, qubits, where, depth - 1)
        elif name == "delay":
            _check_numbers(instruction.params, where)
        elif name != "barrier":
            self._gate(instruction, qubits, where)

    def _gate(self, instruction: Any, qubits: list[int], where: str) -> None:
        name, params = instruction.name, instruction.params
        if name not in self._gates:
            refuse(where, f"the device has no {brief(name)}; transpile for {self._names()}")
        if (len(set(qubits)), len(params)) != self._gates[name]:
            refuse(where, f"{name} has {len(set(qubits))} qubits and {len(params)} parameters")
        if len(instruction.clbits) != (name == "measure"):
            refuse(where, f"{name} has {len(instruction.clbits)} classical bits")
        if not self._chip.connects(qubits):
            names = " and ".join(self._chip.qubits[one] for one in qubits)
            refuse(where, f"{names} are not connected")
        _check_numbers(params, where)
        self.measures = self.measures or name == "measure"

    def _names(self) -> str:
        return ", ".join(name for name in self._gates if name not in ALWAYS)


def _check_numbers(params: Sequence[Any], where: str) -> None:
    for param in params:
        try:
            finite = math.isfinite(float(param))
        except (TypeError, ValueError, OverflowError):
            finite = False
        if not finite:
            refuse(where, f"a finite number is expected, not {brief(param)}")


def check_batch(batch: IqmBatch, chip: Chip, most: int) -> None:
    """Refuse circuits that are too long or need gates, qubits or connections the chip lacks."""
    places = _places(batch, chip)
    for number, circuit in enumerate(batch.circuits):
        where = f"circuit {number}"
        if len(circuit.instructions) > most:
            refuse(where, f"the circuit has more than {most} instructions")
        for index, operation in enumerate(circuit.instructions):
            _check_operation(operation, places, chip, f"{where}, instruction {index}")
        if not any(one.name == "measure" for one in circuit.instructions):
            refuse(where, "nothing is measured")


def circuits_of(batch: IqmBatch, chip: Chip) -> list[tuple[Any, list[Register]]]:
    """Each circuit as a Qiskit circuit, and its registers: one per measurement key."""
    places = _places(batch, chip)
    return [(_circuit(one, places, len(chip.qubits)), _registers(one)) for one in batch.circuits]


def _places(batch: IqmBatch, chip: Chip) -> dict[str, int]:
    """The index of each qubit on the chip, by the name that the batch uses."""
    if batch.qubit_mapping is None:
        return chip.place
    for physical in batch.qubit_mapping.values():
        if physical not in chip.place:
            refuse("the batch's qubit_mapping", f"the chip has no qubit {brief(physical)}")
    return {logical: chip.place[name] for logical, name in batch.qubit_mapping.items()}


def _check_operation(one: Operation, places: dict[str, int], chip: Chip, where: str) -> None:
    if one.name not in OPERATIONS:
        refuse(where, f"the device has no {one.name}; it has {', '.join(OPERATIONS)}")
    for qubit in one.locus:
        if qubit not in places:
            refuse(where, f"there is no qubit {brief(qubit)}")
    if one.name == "cz" and not chip.connects([places[qubit] for qubit in one.locus]):
        refuse(where, f"{one.locus[0]} and {one.locus[1]} are not connected")


def _registers(circuit: IqmCircuit) -> list[Register]:
    measured = (one for one in circuit.instructions if one.name == "measure")
    return [(one.args["key"], len(one.locus)) for one in measured]


def _circuit(circuit: IqmCircuit, places: dict[str, int], qubits: int) -> Any:
    from qiskit import QuantumCircuit

    made = QuantumCircuit(qubits, sum(width for _, width in _registers(circuit)))
    used = 0
    feedback: dict[tuple[str, str], int] = {}
    for one in circuit.instructions:
        locus = [places[qubit] for qubit in one.locus]
        if one.name == "measure":
            bits = range(used, used + len(locus))
            made.measure(locus, bits)
            key = one.args.get("feedback_key", "")
            feedback.update({(key, qubit): bit for qubit, bit in zip(one.locus, bits, strict=True)})
            used += len(locus)
        else:
            _add_gate(made, one, locus, feedback)
    return made


def _add_gate(
    made: Any, one: Operation, locus: list[int], feedback: dict[tuple[str, str], int]
) -> None:
    """Add an operation; delays are omitted, as the noise does not depend on time."""
    if one.name == "prx":
        made.r(one.args["angle"], one.args["phase"], locus[0])
    elif one.name == "cz":
        made.cz(*locus)
    elif one.name == "barrier":
        made.barrier(locus)
    elif one.name == "reset":
        made.reset(locus)
    elif one.name == "cc_prx":
        bit = feedback[one.args["feedback_key"], one.args["feedback_qubit"]]
        with made.if_test((made.clbits[bit], 1)):
            made.r(one.args["angle"], one.args["phase"], locus[0])


def iqm_size(circuit: IqmCircuit) -> tuple[int, bool]:
    """The number of operations in a circuit, and whether it is recomputed for each shot."""
    names = [one.name for one in circuit.instructions if one.name not in ("barrier", "delay")]
    return len(names), _is_dynamic(names)


def qiskit_size(circuit: Any) -> tuple[int, bool]:
    """Like `iqm_size`, for a Qiskit circuit; both branches of `if_else` count."""
    gates, names = 0, []
    for instruction in circuit.data:
        if instruction.name == "if_else":
            gates += sum(qiskit_size(block)[0] for block in instruction.operation.blocks)
        if instruction.name not in ("barrier", "delay"):
            names.append(instruction.name)
    return gates + len(names), _is_dynamic(names)


def _is_dynamic(names: Sequence[str]) -> bool:
    """Whether a circuit resets, branches or measures before its end."""
    if {"if_else", "reset", "cc_prx"} & {*names}:
        return True
    first = next((at for at, name in enumerate(names) if name == "measure"), len(names))
    return any(name != "measure" for name in names[first:])
