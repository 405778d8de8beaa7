"""Circuits for whatever device the run has. Run it: qtide run examples/ghz.py --qpu noisy-star"""

from typing import Any

from qiskit import QuantumCircuit, transpile

from qtide import Target, program, quantum, task
from qtide.backends.payloads.shots import Shots


def entangled(qubits: int) -> QuantumCircuit:
    """All qubits 0 and all qubits 1, at the same time."""
    circuit = QuantumCircuit(qubits)
    circuit.h(0)
    for qubit in range(1, qubits):
        circuit.cx(0, qubit)
    circuit.measure_all()
    return circuit


def prepared(target: Target, most: int) -> list[Any]:
    """Circuits of two qubits, of three and so on, transpiled for the device; on a node."""
    circuits = [entangled(qubits) for qubits in range(2, most + 1)]
    return list(transpile(circuits, target=target.qiskit(), seed_transpiler=1))


def equal(shots: Shots, qubits: int) -> float:
    """The share of the shots in which all qubits were equal."""
    counts = shots.counts()
    return (counts.get("0" * qubits, 0) + counts.get("1" * qubits, 0)) / len(shots)


@program(nodes=1, payload="qpy")
async def ghz(target: Target, most: int = 5, shots: int = 200) -> dict[str, float]:
    """How often all qubits of an entangled state were equal: always, without noise."""
    circuits = await task(prepared, target, min(most, target.qubits or most))
    answers = await quantum(circuits, shots=shots)
    return {f"{size} qubits": equal(answer, size) for size, answer in enumerate(answers, 2)}
