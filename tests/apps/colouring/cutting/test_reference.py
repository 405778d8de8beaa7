"""Against qiskit-addon-cutting, which cuts the same circuit at the same wire."""

import numpy as np

from qtide.apps.colouring.cutting.cut_circuit import CutCircuit
from qtide.apps.colouring.cutting.cut_plan import GraphPartition
from tests.apps.colouring.cutting.addon import Addon
from tests.apps.colouring.cutting.clusters import PUBLISHED

SMALL = GraphPartition(PUBLISHED.graph.subgraph(range(2, 7)), (2,), ((0, 1), (3, 4)))


def test_the_value_is_that_of_the_addon() -> None:
    shots = 4_000
    circuit, addon = CutCircuit(SMALL, 1), Addon(SMALL, shots)
    assert (addon.circuits, circuit.cuts) == (16, 1)
    for angles in np.array([(0.3, 0.5), (-0.8, 0.2)]):
        ours = circuit.estimate(circuit.probabilities(angles), shots)
        assert abs(addon.expectation(angles) - ours.value) < 6 * ours.error
