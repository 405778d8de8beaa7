import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister
from qiskit.circuit import Parameter, ParameterVector
from qiskit.primitives import BackendEstimatorV2, StatevectorEstimator
from qiskit.quantum_info import SparsePauliOp

from qtide.backends.client.backend import Backend
from qtide.backends.client.client import Client
from qtide.backends.client.qiskit_estimator import QiskitEstimator
from qtide.backends.devices.estimation import measured
from qtide.backends.payloads.formats.pubs import Pauli
from qtide.core.errors import UsageError

HAMILTONIAN = SparsePauliOp(["ZZI", "XXI", "IYY", "ZIX", "III"], [1.0, 0.5, -0.3, 0.7, 2.0])


def ansatz(qubits: int = 3) -> QuantumCircuit:
    """Entangling layers with more parameters than qubits."""
    angles = ParameterVector("a", 2 * qubits)
    circuit = QuantumCircuit(qubits, metadata={"about": "an ansatz"})
    for qubit in range(qubits):
        circuit.ry(angles[qubit], qubit)
    for qubit in range(qubits - 1):
        circuit.cx(qubit, qubit + 1)
    for qubit in range(qubits):
        circuit.rx(2 * angles[qubits + qubit], qubit)
    return circuit


@pytest.fixture(scope="module")
def star(client: Client) -> Backend:
    return Backend(client, "star")


@pytest.fixture(scope="module")
def noisy(client: Client) -> Backend:
    return Backend(client, "noisy")


def exact(pub: Any) -> Any:
    return StatevectorEstimator().run([pub]).result()[0].data.evs


def test_a_sweep_of_observables_is_one_task_and_gives_what_theory_says(star: Backend) -> None:
    values = np.random.default_rng(4).uniform(-3, 3, (2, 3, 6))
    pub = (ansatz(), [[HAMILTONIAN], ["ZZZ"]], values)
    job = QiskitEstimator(star, seed=3).run([pub], precision=0.02)
    [mine] = job.result()
    assert len(job.tasks) == 1
    assert mine.data.evs.shape == (2, 3)
    assert np.abs((mine.data.evs - exact(pub)) / mine.data.stds).max() < 4.5
    assert mine.metadata["shots"] == 2500
    assert mine.metadata["circuit_metadata"] == {"about": "an ansatz"}
    assert job.done() and not job.cancel()


def test_the_standard_errors_are_those_of_repeated_estimates(star: Backend) -> None:
    """Operators that are measured together are correlated, which the errors include."""
    pub = (ansatz(), HAMILTONIAN, np.full((200, 6), 0.7))
    [found] = QiskitEstimator(star, seed=3).run([pub], precision=0.05).result()
    assert found.data.evs.std() == pytest.approx(found.data.stds.mean(), rel=0.25)
    assert found.metadata["circuits"] == 200 * 3  # ZZI and ZIX share a basis


def test_each_pub_has_its_precision(star: Backend) -> None:
    pubs = [(ansatz(), "ZZI", np.zeros(6), 0.1), (ansatz(), "XII", np.full(6, 0.4), 0.03)]
    job = QiskitEstimator(star).run(pubs)
    assert [one.metadata["shots"] for one in job.result()] == [100, 1112]
    assert job.tasks[0].response["shots"] == 1112
    assert job.tasks[0].response["size"] == 2


def test_projectors_are_observables(star: Backend) -> None:
    circuit = QuantumCircuit(2)
    circuit.h(0)
    pub = (circuit, [{"0+": 1.0}, {"1I": 1.0}, {"r0": 2.0, "I-": 1.0}])
    [found] = QiskitEstimator(star, seed=1).run([pub], precision=0.02).result()
    assert found.data.evs == pytest.approx([1.0, 0.0, 0.5], abs=0.08)


def test_too_many_projectors_are_refused_before_their_sum_is_made(
    star: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qtide.backends.client.qiskit_estimator.MOST_TERMS", 9)
    with pytest.raises(UsageError, match="here of 10; 9 at most"):
        QiskitEstimator(star).run([(QuantumCircuit(3), {"00+": 1.0, "1II": 0.5})])


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_shapes_broadcast_as_in_qiskit(star: Backend, data: st.DataObject) -> None:
    label = st.text("IXYZ", min_size=3, max_size=3)
    coefficient = st.floats(0.1, 2)
    one = st.dictionaries(label, coefficient, min_size=1, max_size=4)
    rows, columns = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    observables = data.draw(
        st.lists(st.lists(one, min_size=columns, max_size=columns), min_size=rows, max_size=rows)
    )
    shape = data.draw(st.sampled_from([(), (1,), (columns,), (2, 1, 1)]))
    values = np.random.default_rng(1).uniform(-3, 3, (*shape, 6))
    pub = (ansatz(), observables, values)
    [found] = QiskitEstimator(star, seed=2).run([pub], precision=0.05).result()
    assert found.data.evs.shape == exact(pub).shape
    assert np.abs(found.data.evs - exact(pub)).max() <= 6 * found.data.stds.max() + 1e-9


def test_mitigation_removes_readout_errors_and_says_its_cost(noisy: Backend) -> None:
    circuit = QuantumCircuit(3)
    circuit.x(0)
    pub = (circuit, ["ZZZ", "IIZ", "ZII"])
    plain = QiskitEstimator(noisy, seed=1)
    better = QiskitEstimator(noisy, seed=1, mitigation="m3")
    wrong, right = (one.run([pub], precision=0.01).result()[0] for one in (plain, better))
    assert np.abs(wrong.data.evs - exact(pub)).max() > 0.08
    assert np.abs(right.data.evs - exact(pub)).max() < 0.02
    assert plain.cost([pub], precision=0.01) == (1, 10_000, 0)
    assert better.cost([pub], precision=0.01) == (3, 30_000, 2)
    task = better.run([pub], precision=0.1).tasks[0]
    assert task.response["size"] == 3


def test_a_circuit_is_transpiled_once_for_its_device(star: Backend) -> None:
    circuit = ansatz(4)
    assert star.fitted(circuit) is star.fitted(circuit.copy())
    fitted = star.fitted(circuit)
    assert star.fitted(fitted) is fitted


def test_qiskits_own_estimator_agrees(star: Backend) -> None:
    fitted = star.fitted(ansatz())
    pub = (fitted, HAMILTONIAN.apply_layout(fitted.layout), np.full(6, 0.9))
    [mine] = QiskitEstimator(star, seed=1).run([pub], precision=0.02).result()
    [theirs] = BackendEstimatorV2(backend=star).run([pub], precision=0.02).result()
    assert mine.data.evs == pytest.approx(theirs.data.evs, abs=0.15)


def test_branches_take_parameters(star: Backend) -> None:
    angle = Parameter("angle")
    circuit = QuantumCircuit(2, 1)
    circuit.x(0)
    circuit.measure(0, 0)
    with circuit.if_test((0, 1)):
        circuit.ry(angle, 1)
    pub = (circuit, "ZI", [[0.0], [np.pi]])
    [found] = QiskitEstimator(star, seed=1).run([pub], precision=0.1).result()
    assert found.data.evs.tolist() == [1.0, -1.0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"mitigation": "zne"}, "'m3' or None"),
        ({"default_precision": 0.0}, "above 0"),
        ({"default_precision": math.inf}, "above 0"),
    ],
)
def test_bad_options_are_refused(star: Backend, words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        QiskitEstimator(star, **words).run([(ansatz(), "ZZZ", np.zeros(6))])


def test_nothing_is_not_estimated(star: Backend) -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        QiskitEstimator(star).run([])
    with pytest.raises(UsageError, match="no parameter sets"):
        QiskitEstimator(star).run([(ansatz(), "ZZZ", np.zeros((0, 6)))])


def test_registers_of_any_name_are_left_alone() -> None:
    """Qiskit's own names, `c0` and so on, were taken for the measurement as well."""
    names = [f"{letter}{number}" for letter in ("c", "read") for number in range(9)]
    circuit = QuantumCircuit(QuantumRegister(2, "q"), *(ClassicalRegister(1, n) for n in names))
    assert [each.size for each in measured(circuit, Pauli.of("ZZ")).cregs] == [1] * len(names) + [2]
