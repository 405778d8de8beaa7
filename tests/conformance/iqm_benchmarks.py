"""IQM's own benchmarks, GHZ and CLOPS, on a noisy star, through IQM's API and without qtide."""

from __future__ import annotations

import os
import sys
import unittest
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from iqm.benchmarks.entanglement.ghz import GHZBenchmark, GHZConfiguration
from iqm.benchmarks.quantum_volume.clops import CLOPSBenchmark, CLOPSConfiguration
from iqm.qiskit_iqm import IQMProvider  # type: ignore[import-not-found]  # as in stock_iqm.py

os.environ["IQM_TOKEN"] = os.environ["QTIDE_TOKEN"]
PROVIDER = IQMProvider(os.environ["QTIDE_URL"], quantum_computer="noisy")
QUBITS = (0, 2, 1)
"""A star of three: qubit 2 is the centre."""


def observed(benchmark: Any) -> dict[str, float]:
    """Run a benchmark; return the values that it reports, by name."""
    benchmark.run()
    found = {each.name: each.value for each in benchmark.analyze().observations}
    print(benchmark.name(), found, flush=True)
    return found


class Benchmarks(unittest.TestCase):
    def test_ghz(self) -> None:
        backend = PROVIDER.get_backend(use_metrics=True)
        for routine in ("tree", "log", "naive"):
            with self.subTest(routine):
                configuration = GHZConfiguration(
                    state_generation_routine=routine,
                    custom_qubits_array=[QUBITS],
                    shots=1000,
                    mit_shots=1000,
                )
                found = observed(GHZBenchmark(backend, configuration))
                self.assertGreater(found["fidelity"], 0.8)
                self.assertLess(found["fidelity"], 1.0)

    def test_clops(self) -> None:
        configuration = CLOPSConfiguration(
            qubits=QUBITS, num_circuits=10, num_updates=5, physical_layout="batching"
        )
        found = observed(CLOPSBenchmark(PROVIDER.get_backend(), configuration))
        self.assertGreater(found["clops_v"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
