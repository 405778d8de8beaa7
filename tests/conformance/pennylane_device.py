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
THEIR_FAULTS: dict[str, str] = {}
"""Tests that fail with any device of that plug-in, and why."""


class GateOfQtide(RemoteDevice):  # type: ignore[misc]  # PennyLane has no types
    """`qiskit.remote` on the gate device, as a device that PennyLane makes from its name alone."""

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
    qml.plugin_devices["qtide.gate"] = EntryPoint("qtide.gate", value, "pennylane.plugins")
    quietly = ("-q", "--tb=line", "-p", "no:cacheprovider", "--no-flaky-report")
    ours = pytest.main([*quietly, "--noconftest", "-c", os.devnull, __file__])
    place = Path(theirs.__file__).parent
    settings = ("-c", str(place / "pytest.ini"), "--rootdir", str(place))
    terms = ("--device=qtide.gate", f"--shots={SHOTS}", "--skip-ops")
    left_out = [f"--deselect={name}" for name in THEIR_FAULTS]
    sys.exit(ours or pytest.main([*quietly, *settings, *terms, *left_out, str(place)]))
