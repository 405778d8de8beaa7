"""Devices estimate how long a payload takes: emulators by what they compute, chips by depth."""

from __future__ import annotations

import dimod
import pytest
from qiskit import QuantumCircuit

from qtide.backends.devices.annealer import Annealer
from qtide.backends.devices.bursts import Bursts
from qtide.backends.devices.device import make
from qtide.backends.devices.iqm_server import IqmServer
from qtide.backends.devices.profile import Cost
from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation


def layers(qubits: int, depth: int, *, early: bool = False) -> QuantumCircuit:
    circuit = QuantumCircuit(qubits, qubits)
    for _ in range(depth):
        circuit.h(range(qubits))
        if early:
            circuit.measure(0, 0)
        for qubit in range(0, qubits - 1, 2):
            circuit.cx(qubit, qubit + 1)
    circuit.measure(range(qubits), range(qubits))
    return circuit


def expected(circuits: list[QuantumCircuit], shots: int = 1000) -> float:
    cost = make("gate", {"qubits": 20}).cost(circuits)
    assert cost is not None
    return cost.seconds(shots)


def test_twenty_qubits_are_not_thought_to_take_minutes() -> None:
    assert expected([layers(2, 5)]) < 0.1
    assert expected([layers(12, 10)]) < 1.0
    assert 0.05 < expected([layers(20, 10)]) < 5.0


def test_more_circuits_qubits_and_gates_take_longer() -> None:
    one = expected([layers(14, 10)], 1)
    assert expected([layers(14, 10)] * 10, 1) == pytest.approx(10 * one)
    assert expected([layers(18, 10)], 1) > 3 * one
    assert expected([layers(14, 100)], 1) > 3 * one


def test_what_is_computed_anew_for_each_shot_costs_by_the_shot() -> None:
    late, early = (make("gate", {"qubits": 10}).cost(layers(10, 5, early=e)) for e in (False, True))
    assert late is not None and early is not None
    assert late.shot < 1e-4 < early.shot
    assert early.seconds(10_000) > 50 * late.seconds(10_000)


def test_noise_squares_the_state() -> None:
    ideal, noisy = (
        make("gate", {"qubits": 10, "noisy": n}).cost(layers(10, 5)) for n in (False, True)
    )
    assert ideal is not None and noisy is not None
    assert noisy.fixed > 10 * ideal.fixed


def test_an_annealer_counts_sweeps_and_couplings() -> None:
    small, large = (
        dimod.generators.gnp_random_bqm(size, 0.5, "SPIN", random_state=1) for size in (10, 200)
    )
    assert Annealer().cost(small).fixed < 0.1
    assert Annealer().cost(large).fixed > 25 * Annealer().cost(small).fixed
    assert Annealer(sweeps=2000).cost(large).fixed > 9 * Annealer().cost(large).fixed


def test_a_chips_time_is_shots_times_reset_and_depth() -> None:
    flip = Operation("prx", ("QB1",), {"angle": 0.5, "phase": 0.0})
    other = Operation("prx", ("QB2",), {"angle": 0.5, "phase": 0.0})
    measure = Operation("measure", ("QB1", "QB2"), {"key": "m"})
    circuit = IqmCircuit("c", (flip, flip, other, measure))
    cost = IqmServer("http://nowhere.example").cost(IqmBatch((circuit, circuit)))
    assert cost.seconds(1000) == pytest.approx(1.0 + 1000 * 2 * (300e-6 + 3 * 100e-9))


def test_what_knows_nothing_says_so() -> None:
    assert Bursts().cost(None) is None
    assert Cost(1.0, 0.5).seconds(4) == 3.0
