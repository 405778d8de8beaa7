"""PennyLane's tests of devices on `qiskit.remote`, with the service's backend behind it.

PennyLane's command makes the device itself from words, so this file registers a device that takes
its backend from the service and is otherwise `qiskit.remote`.
"""

from __future__ import annotations

import os
import sys

import pennylane as qml
import pytest
from pennylane import numpy as np

import qtide


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
    sys.exit(
        pytest.main(["-q", "--noconftest", "-c", os.devnull, "-p", "no:cacheprovider", __file__])
    )
