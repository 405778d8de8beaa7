"""IQM's circuits for an emulator: checked against the chip, then converted to Qiskit."""

from __future__ import annotations

from typing import Any

from qtide.devices.chip import Chip
from qtide.devices.gates import OPERATIONS
from qtide.payloads.document import brief, refuse
from qtide.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation

Register = tuple[str, int]


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
    """For each circuit, the Qiskit circuit and its registers: one per measurement key."""
    places = _places(batch, chip)
    return [(_circuit(one, places, len(chip.qubits)), _registers(one)) for one in batch.circuits]


def _places(batch: IqmBatch, chip: Chip) -> dict[str, int]:
    """The number of each qubit, by the names that the batch uses."""
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
    """Delays are left out: this noise does not depend on time."""
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
