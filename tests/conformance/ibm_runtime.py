"""qiskit-ibm-runtime's local mode on a device of the service: its own EstimatorV2 and SamplerV2."""

from __future__ import annotations

import sys
import unittest

import numpy as np
from qiskit import QuantumCircuit
from qiskit.circuit.library import real_amplitudes
from qiskit.primitives import StatevectorEstimator
from qiskit.quantum_info import SparsePauliOp
from qiskit.transpiler import generate_preset_pass_manager
from qiskit_ibm_runtime import EstimatorV2, SamplerV2

import qtide

BACKEND = qtide.qpu("star").backend()
OBSERVABLE = SparsePauliOp(["ZZI", "XXI", "IYY"], [1.0, 0.5, -0.3])


class LocalMode(unittest.TestCase):
    def test_estimator(self) -> None:
        ansatz = real_amplitudes(3, reps=1)
        values = np.linspace(-2, 2, 5 * ansatz.num_parameters).reshape(5, -1)
        fitted = generate_preset_pass_manager(1, backend=BACKEND, seed_transpiler=1).run(ansatz)
        pub = (fitted, OBSERVABLE.apply_layout(fitted.layout), values)
        found = EstimatorV2(mode=BACKEND).run([pub], precision=0.02).result()[0].data.evs
        exact = StatevectorEstimator().run([(ansatz, OBSERVABLE, values)]).result()[0].data.evs
        self.assertLess(np.abs(found - exact).max(), 0.15)

    def test_sampler(self) -> None:
        bell = QuantumCircuit(2)
        bell.h(0)
        bell.cx(0, 1)
        bell.measure_all()
        fitted = generate_preset_pass_manager(1, backend=BACKEND).run(bell)
        counts = SamplerV2(mode=BACKEND).run([fitted], shots=500).result()[0].data.meas.get_counts()
        self.assertEqual(sum(counts.values()), 500)
        self.assertLessEqual(set(counts), {"00", "11"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
