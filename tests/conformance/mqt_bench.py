"""Circuits of MQT Bench on the gate device, against the distributions of a bare Aer."""

from __future__ import annotations

import sys
import unittest

from mqt.bench import BenchmarkLevel, get_benchmark
from qiskit import transpile
from qiskit_aer import AerSimulator

import qtide

BACKEND = qtide.qpu("gate").backend()
NAMES = ("ghz", "wstate", "dj", "graphstate", "qft", "qftentangled", "bv", "qpeexact",
         "vqe_real_amp", "ae", "qaoa", "vqe_two_local")  # fmt: skip
SHOTS = 8000


def distance(one: dict[str, int], other: dict[str, int]) -> float:
    keys = one.keys() | other.keys()
    return sum(abs(one.get(k, 0) - other.get(k, 0)) for k in keys) / (2 * SHOTS)


class Benchmarks(unittest.TestCase):
    def test_distributions(self) -> None:
        ran = 0
        for name in NAMES:
            with self.subTest(name):
                try:
                    circuit = get_benchmark(name, level=BenchmarkLevel.ALG, circuit_size=5)
                except ValueError as error:  # the set of benchmarks changes between versions
                    print(f"{name}: not in this version: {error}")
                    continue
                circuit = circuit.assign_parameters([0.4] * circuit.num_parameters)
                if not circuit.num_clbits:  # some algorithms are left without measurements
                    circuit.measure_all()
                fitted = transpile(circuit, BACKEND, seed_transpiler=1)
                mine = BACKEND.run(fitted, shots=SHOTS, seed_simulator=1).result().get_counts()
                aer = AerSimulator(seed_simulator=2)
                theirs = aer.run(transpile(circuit, aer), shots=SHOTS).result().get_counts()
                again = (
                    aer.run(transpile(circuit, aer), shots=SHOTS, seed_simulator=3)
                    .result()
                    .get_counts()
                )
                print(f"{name:14} {distance(mine, theirs):.4f} {distance(again, theirs):.4f}")
                self.assertLess(distance(mine, theirs), 2 * distance(again, theirs) + 0.02)
                ran += 1
        self.assertGreater(ran, 6)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
