"""QED-C's application-oriented benchmarks on the gate device, by their own library."""

from __future__ import annotations

import sys
import tempfile
import unittest
from importlib import import_module
from os import chdir
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from qedclib import initialize, metrics

import qtide

initialize("qiskit")
BACKEND = qtide.qpu("gate").backend()
# amplitude_estimation is left out: it asks for a device's name that only other families note
FAMILIES = {
    "bernstein_vazirani": "bv_benchmark",
    "deutsch_jozsa": "dj_benchmark",
    "hidden_shift": "hs_benchmark",
    "quantum_fourier_transform": "qft_benchmark",
    "phase_estimation": "pe_benchmark",
    "grovers": "grovers_benchmark",
    "hamiltonian_simulation": "hamiltonian_simulation_benchmark",
}


def fidelities(family: str, module: str) -> list[float]:
    """The fidelity of each circuit of a family, of three to five qubits."""
    benchmark: Any = import_module(f"qedcbench.{family}.{module}")
    circuits, _ = benchmark.get_circuits(min_qubits=3, max_qubits=5, max_circuits=2)
    benchmark.run_circuits(
        circuits, num_shots=1000, backend_id="gate of qtide", provider_backend=BACKEND
    )
    found = metrics.circuit_metrics
    return [
        each["fidelity"]
        for group in found.values()
        if isinstance(group, dict)
        for each in group.values()
        if "fidelity" in each
    ]


class Families(unittest.TestCase):
    """The device has no noise, so every circuit should do what theory says."""


def _test_of(family: str, module: str) -> Any:
    def test(self: unittest.TestCase) -> None:
        found = fidelities(family, module)
        print(f"{family}: {len(found)} circuits, fidelity from {min(found):.3f}", flush=True)
        self.assertGreater(len(found), 2)
        self.assertGreater(min(found), 0.9)

    return test


for _family, _module in FAMILIES.items():
    setattr(Families, f"test_{_family}", _test_of(_family, _module))

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        chdir(folder)  # it writes its figures and data where it is
        unittest.main(argv=sys.argv[:1])
