"""Qiskit circuits for an emulator: checked against the chip and its gates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from qtide.devices.chip import Chip
from qtide.devices.gates import ALWAYS
from qtide.payloads.document import brief, refuse

DEEPEST = 10
"""How deep branches may be nested."""

Gates = dict[str, tuple[int, int]]


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


def registers(circuit: Any, number: int) -> list[tuple[str, int]]:
    """The classical registers; bits outside any form one register, as in Qiskit's counts."""
    if not circuit.cregs and circuit.num_clbits:
        return [("", circuit.num_clbits)]
    bits = [circuit.find_bit(bit).index for register in circuit.cregs for bit in register]
    if bits != list(range(circuit.num_clbits)):
        refuse(f"circuit {number}", "every classical bit has to be in one register, in order")
    return [(register.name, register.size) for register in circuit.cregs if register.size]


class _Check:
    """Checks a circuit and its branches."""

    def __init__(self, chip: Chip, gates: Gates, most: int) -> None:
        self._chip = chip
        self._gates = gates
        self._most = most
        self._seen = 0
        self.measures = False

    def block(self, block: Any, places: Sequence[int], where: str, depth: int) -> None:
        """`places` gives the chip's qubit for each qubit of the block."""
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
