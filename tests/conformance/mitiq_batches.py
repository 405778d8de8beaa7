"""mitiq's batched executors on a device of the service: all circuits of a batch are one task."""

from __future__ import annotations

import sys
import unittest
from typing import Any

from mitiq import MeasurementResult, Observable, PauliString, zne
from mitiq.executor import Executor
from qiskit import QuantumCircuit

import qtide

BACKEND = qtide.qpu("star").backend()
BATCHES: list[int] = []


def run_all(circuits: list[QuantumCircuit]) -> list[Any]:
    """What mitiq calls with many circuits at once."""
    BATCHES.append(len(circuits))
    fitted = [BACKEND.fitted(circuit) for circuit in circuits]
    result = BACKEND.run(fitted, shots=4000, seed_simulator=1).result()
    found = []
    for number in range(len(circuits)):
        counts = result.get_counts(number)
        bits = [[int(bit) for bit in reversed(key)] for key, n in counts.items() for _ in range(n)]
        found.append(MeasurementResult(bits))
    return found


run_all.__annotations__["return"] = list[MeasurementResult]  # mitiq reads this at run time


def identity(layers: int) -> QuantumCircuit:
    """A circuit that does nothing if there is no noise."""
    circuit = QuantumCircuit(2)
    for _ in range(layers):
        circuit.cz(0, 1)
        circuit.x([0, 1])
        circuit.x([0, 1])
        circuit.cz(0, 1)
    return circuit


class Batches(unittest.TestCase):
    def test_zero_noise_extrapolation(self) -> None:
        observable = Observable(PauliString("ZZ"))
        circuit = identity(4)
        executor = Executor(run_all, max_batch_size=100)
        [plain] = executor.evaluate([circuit], observable)
        better = zne.execute_with_zne(circuit, executor, observable)
        self.assertAlmostEqual(plain.real, 1.0, 2)  # the star has no noise
        self.assertAlmostEqual(better.real, 1.0, 2)
        self.assertEqual(BATCHES, [1, 3])  # three noise levels are one task


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
