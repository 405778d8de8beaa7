"""Circuits for whatever device the run has. Run it: qtide run examples/ghz.py --qpu noisy-star"""

from typing import Any

from qiskit import QuantumCircuit, transpile

from qtide import Target, program, quantum, task


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


@program(nodes=1)
async def ghz(target: Target, most: int = 5, shots: int = 200) -> dict[str, float]:
    """In which share of the shots all qubits were equal: 1 without noise."""
    sizes = range(2, min(most, target.qubits) + 1)
    answers = await quantum(await task(prepared, target, sizes[-1]), shots=shots)
    equal = ({"0" * size, "1" * size} for size in sizes)
    counts = [answer.counts() for answer in answers]
    found = zip(sizes, equal, counts, strict=True)
    return {f"{size} qubits": sum(c.get(one, 0) for one in e) / shots for size, e, c in found}
