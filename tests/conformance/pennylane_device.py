"""PennyLane's tests of devices on `qiskit.remote`, with the service's backend behind it.

PennyLane's command makes the device itself from words, so this file registers a device that takes
its backend from the service and is otherwise `qiskit.remote`.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pennylane as qml
import pytest
from pennylane import numpy as np
from pennylane.devices import tests as theirs
from pennylane_qiskit import RemoteDevice

import qtide

SHOTS = 20_000
"""PennyLane's tests allow an error of 0.05."""
NAME = "qtide.gate"
THEIR_FAULTS = (
    "test_wire_label_in_tensor_prod_observables",  # the plug-in takes labels of wires for indices
    "test_wires_expval",  # the same
    "test_Select",  # PennyLane allocates wires, which the plug-in does not know
    "test_QuantumMonteCarlo",  # Qiskit's transpiler panics, in some runs
)
"""Tests that fail in the same way with the plug-in on Qiskit's own emulator."""


class Failures:
    """A plug-in of pytest that notes which tests failed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self.names.append(report.nodeid)


class GateOfQtide(RemoteDevice):  # type: ignore[misc]  # PennyLane has no types
    """`qiskit.remote` on the gate device, as a device that PennyLane makes from its name alone."""

    name = NAME

    def __init__(self, wires: Any, shots: int | None = None, **words: Any) -> None:
        super().__init__(wires=wires, backend=qtide.qpu("gate").backend(), shots=shots, **words)


def device(wires: int = 2) -> qml.devices.Device:
    """`qiskit.remote` on the gate device."""
    backend = qtide.qpu("gate").backend()
    return qml.device("qiskit.remote", wires=wires, backend=backend)


def test_a_qnode_gives_what_theory_says() -> None:
    dev = device(2)

    @qml.set_shots(4000)
    @qml.qnode(dev)
    def circuit(x: float) -> object:
        qml.RX(x, wires=0)
        qml.CNOT(wires=[0, 1])
        return qml.expval(qml.PauliZ(1))

    for x in (0.0, 0.7, 2.1):
        assert abs(circuit(x) - np.cos(x)) < 0.08


def test_a_gradient_by_parameter_shift() -> None:
    dev = device(2)

    @qml.set_shots(8000)
    @qml.qnode(dev, diff_method="parameter-shift")
    def circuit(x: float) -> object:
        qml.RY(x, wires=0)
        qml.CZ(wires=[0, 1])
        return qml.expval(qml.PauliZ(0))

    x = np.array(0.6, requires_grad=True)
    assert abs(qml.grad(circuit)(x) + np.sin(0.6)) < 0.1


def test_counts_and_probabilities() -> None:
    dev = device(2)

    @qml.set_shots(2000)
    @qml.qnode(dev)
    def circuit() -> object:
        qml.Hadamard(wires=0)
        qml.CNOT(wires=[0, 1])
        return qml.counts(wires=[0, 1])

    counts = circuit()
    assert sum(counts.values()) == 2000
    assert set(counts) <= {"00", "11"}


if __name__ == "__main__":
    value = "pennylane_device:GateOfQtide"
    qml.plugin_devices[NAME] = EntryPoint(NAME, value, "pennylane.plugins")
    quietly = ("-q", "--tb=line", "-p", "no:cacheprovider", "--no-flaky-report")
    ours = pytest.main([*quietly, "--noconftest", "-c", os.devnull, __file__])
    place = Path(theirs.__file__).parent
    settings = ("-c", str(place / "pytest.ini"), "--rootdir", str(place), str(place))
    terms = (f"--device={NAME}", f"--shots={SHOTS}", "--skip-ops")
    failures = Failures()
    pytest.main([*quietly, *settings, *terms], plugins=[failures])
    news = [name for name in failures.names if not any(each in name for each in THEIR_FAULTS)]
    print(f"{len(failures.names)} failures of PennyLane's tests; not known: {news or 'none'}")
    sys.exit(ours or len(news))
