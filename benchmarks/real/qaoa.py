"""QAOA, with Qiskit: circuits on three nodes, shots by the QPU, their expectation on one node."""

from __future__ import annotations

from qtide import classical, program, quantum, task
from qtide.backends.payloads.payload import Burst

QUBITS = 8


def depth(seed: int) -> int:
    """The depth of one layer for a ring, transpiled for a device with a line of qubits."""
    from qiskit import QuantumCircuit, transpile

    circuit = QuantumCircuit(QUBITS)
    for qubit in range(QUBITS):
        circuit.rzz(0.1 * (seed + 1), qubit, (qubit + 1) % QUBITS)
    circuit.rx(0.3, range(QUBITS))
    line = [[qubit, qubit + 1] for qubit in range(QUBITS - 1)]
    basis = ["cz", "rz", "sx"]
    made = transpile(circuit, coupling_map=line, basis_gates=basis, seed_transpiler=seed)
    return int(made.depth())


def expectation(depths: list[int]) -> float:
    """The energy of the ring after a layer."""
    from qiskit import QuantumCircuit
    from qiskit.quantum_info import SparsePauliOp, Statevector

    circuit = QuantumCircuit(QUBITS)
    circuit.h(range(QUBITS))
    circuit.rx(0.01 * sum(depths), range(QUBITS))
    pairs = [("ZZ", [n, (n + 1) % QUBITS], 1.0) for n in range(QUBITS)]
    ring = SparsePauliOp.from_sparse_list(pairs, QUBITS)
    return float(Statevector(circuit).expectation_value(ring).real)


@program
async def qaoa(rounds: int = 4, quantum_s: float = 0.5) -> float:
    """Add up the energy of each round."""
    total = 0.0
    for n in range(rounds):
        parts = await classical(*(task(depth, 3 * n + part) for part in range(3)))
        await quantum(Burst(quantum_s))
        total += await task(expectation, parts)
    return round(total, 6)
