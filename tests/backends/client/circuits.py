"""Circuits for the tests, and how far samples may be from what theory says."""

from collections.abc import Mapping

from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister
from qiskit.circuit import Parameter


def bell() -> QuantumCircuit:
    circuit = QuantumCircuit(2, name="bell", metadata={"about": "a pair"})
    circuit.h(0)
    circuit.cx(0, 1)
    circuit.measure_all()
    return circuit


def three_registers() -> QuantumCircuit:
    """`low` is 01, `middle` 1, `high` 110, and one bit of `high` is measured last."""
    qubits = QuantumRegister(4, "q")
    low, middle, high = (
        ClassicalRegister(n, s) for n, s in ((2, "low"), (1, "middle"), (3, "high"))
    )
    circuit = QuantumCircuit(qubits, low, middle, high)
    circuit.x([0, 2, 3])
    circuit.measure([0, 1], low)
    circuit.measure(2, middle)
    circuit.measure([1, 3], [high[0], high[1]])
    circuit.measure(3, high[2])
    return circuit


def rotated() -> QuantumCircuit:
    """Two parameters, two registers, and correlations between them."""
    theta, phi = Parameter("theta"), Parameter("phi")
    one, two = ClassicalRegister(1, "one"), ClassicalRegister(2, "two")
    circuit = QuantumCircuit(QuantumRegister(3), one, two)
    circuit.ry(theta, 0)
    circuit.cx(0, 1)
    circuit.rx(phi, 2)
    circuit.cz(1, 2)
    circuit.measure(0, one)
    circuit.measure([1, 2], two)
    return circuit


def distance(counts: Mapping[str, int], others: Mapping[str, int]) -> float:
    """The total variation distance of the frequencies: 0 if equal, 1 if nothing is in common."""
    mine, theirs = sum(counts.values()), sum(others.values())
    keys = counts.keys() | others.keys()
    return sum(abs(counts.get(k, 0) / mine - others.get(k, 0) / theirs) for k in keys) / 2
