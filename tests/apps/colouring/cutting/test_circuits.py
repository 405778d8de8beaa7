"""The circuits for devices, against the kernels; a transpiled circuit measures the same."""

from typing import Any

import numpy as np
import pytest
from qiskit.quantum_info import Statevector

from qtide.apps.colouring.cutting.cut_circuit import CutCircuit
from qtide.apps.colouring.cutting.cut_device import CutTarget, bound, templates
from qtide.backends.devices.gate import GateDevice, gate, star
from tests.apps.colouring.cutting.clusters import PUBLISHED, some_angles


def measured(circuit: Any) -> np.ndarray:
    """The exact probabilities of the classical bits."""
    places = {}
    bare = circuit.copy_empty_like()
    for instruction in circuit.data:
        if instruction.name == "measure":
            bit = circuit.find_bit(instruction.clbits[0]).index
            places[bit] = circuit.find_bit(instruction.qubits[0]).index
        else:
            bare.append(instruction)
    return np.array(Statevector(bare).probabilities([places[bit] for bit in sorted(places)]))


@pytest.mark.parametrize(("device", "depth"), [(star(), 1), (gate(6), 2)])
def test_bound_circuits_measure_what_the_kernels_say(device: GateDevice, depth: int) -> None:
    cut = CutCircuit(PUBLISHED, depth)
    angles = some_angles(cut, 3)
    for fragment, exact in zip(cut.fragments, cut.probabilities(angles), strict=True):
        batch = bound(templates(fragment, cut.penalty, CutTarget(device.properties())), angles)
        device.check(batch)
        found = np.array([measured(each) for each in batch])
        assert np.allclose(found, exact.reshape(found.shape), atol=1e-9)


def test_a_shape_is_transpiled_once() -> None:
    first, second = (CutCircuit(PUBLISHED, 1).fragments for _ in range(2))
    target = CutTarget(star().properties())
    once, again = templates(first[0], 2, target), templates(second[0], 2, target)
    assert all(one is other for one, other in zip(once, again, strict=True))
