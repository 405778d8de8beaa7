import numpy as np
import pytest
from qiskit import QuantumCircuit, transpile
from qiskit.primitives import SamplerPubResult, StatevectorSampler
from qiskit.providers import JobStatus

from qtide.backends.client.backend import Backend
from qtide.backends.client.client import Client, ServiceFailed, TaskFailed
from qtide.backends.client.qiskit_sampler import QiskitSampler
from qtide.core.errors import UsageError
from tests.backends.client.circuits import bell, distance, rotated, three_registers

SHOTS = 4000


@pytest.fixture
def backend(client: Client) -> Backend:
    return Backend(client, "star")


def test_a_sweep_is_one_task_and_gives_what_theory_says(backend: Backend) -> None:
    values = {"theta": np.linspace(0, 3, 6).reshape(2, 3), "phi": np.full((2, 3), 1.1)}
    job = QiskitSampler(backend, seed=5).run([(transpile(rotated(), backend), values)], shots=SHOTS)
    [mine] = job.result()
    [theirs] = StatevectorSampler(seed=5).run([(rotated(), values)], shots=SHOTS).result()
    assert len(job.tasks) == 1
    assert mine.data.shape == (2, 3)
    for index in np.ndindex(2, 3):
        for name in ("one", "two"):
            counts = getattr(mine.data, name).get_counts(index)
            assert distance(counts, getattr(theirs.data, name).get_counts(index)) < 0.06
        assert distance(_joined(mine, index), _joined(theirs, index)) < 0.06


def _joined(result: SamplerPubResult, index: tuple[int, ...]) -> dict[str, int]:
    """Both registers joined: only this shows that their shots belong together."""
    counts: dict[str, int] = result.join_data(["one", "two"])[index].get_counts()
    return counts


def test_every_register_has_its_bits(backend: Backend) -> None:
    [answer] = QiskitSampler(backend).run([transpile(three_registers(), backend)], shots=3).result()
    assert answer.data.low.get_bitstrings() == ["01"] * 3
    assert answer.data.middle.get_bitstrings() == ["1"] * 3
    assert answer.data.high.get_bitstrings() == ["110"] * 3
    assert answer.metadata["shots"] == 3


def test_pubs_keep_their_order_and_their_shots(backend: Backend) -> None:
    pair, registers = transpile([bell(), three_registers()], backend)
    job = QiskitSampler(backend, default_shots=9).run(
        [(pair, None, 20), registers, (pair, None, 20)]
    )
    first, second, third = job.result()
    assert (first.data.meas.num_shots, second.data.low.num_shots) == (20, 9)
    assert third.data.meas.num_shots == 20
    assert first.metadata["circuit_metadata"] == {"about": "a pair"}
    assert len(job.tasks) == 1
    assert job.done() and job.in_final_state() and not job.running()


def test_a_sweep_too_large_for_a_task_becomes_several(backend: Backend) -> None:
    values = np.zeros((10_001, 2))
    job = QiskitSampler(backend).run([(rotated(), values)], shots=2)
    [answer] = job.result()
    assert [task.response["size"] for task in job.tasks] == [10_000, 1]
    assert answer.data.two.get_counts() == {"00": 20_002}


def test_the_same_key_gives_the_same_job(backend: Backend) -> None:
    """The circuits are built anew, as after the death of the program."""
    first, again = (
        QiskitSampler(backend).run([(rotated(), np.zeros((3, 2)))], shots=5, key="sweep-17")
        for _ in range(2)
    )
    assert again.job_id() == first.job_id()
    one, other = (backend.run(transpile(bell(), backend), key="bell-4") for _ in range(2))
    assert one.job_id() == other.job_id()
    assert other.result().get_counts().keys() <= {"00", "11"}
    with pytest.raises(UsageError, match=r"'bell-4' is that of another task .*shots"):
        backend.run(transpile(bell(), backend), shots=17, key="bell-4")


def test_a_job_is_cancelled(client: Client) -> None:
    slow = Backend(client, "slow")
    job = QiskitSampler(slow, default_shots=10_000).run([transpile(bell(), slow)])
    assert not job.done()
    assert job.cancel() is True
    with pytest.raises(TaskFailed, match="cancelled"):
        job.result()
    assert job.cancelled()
    assert job.status() is JobStatus.CANCELLED


def test_nothing_is_refused(backend: Backend) -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        QiskitSampler(backend).run([])
    with pytest.raises(UsageError, match="no parameter sets"):
        QiskitSampler(backend).run([(rotated(), np.zeros((0, 2)))])


def test_a_circuit_too_wide_for_the_device_is_refused_before_it_is_transpiled(
    backend: Backend,
) -> None:
    with pytest.raises(UsageError, match=f"12 qubits, the device '{backend.name}' has "):
        QiskitSampler(backend).run([QuantumCircuit(12)])


def test_a_circuit_wider_than_some_devices_of_a_class_goes_to_another(client: Client) -> None:
    anywhere = Backend(client, "any:gate")
    wide = QuantumCircuit(6, 6)
    wide.x(range(6))
    wide.measure(range(6), range(6))
    job = QiskitSampler(anywhere).run([wide], shots=5)
    assert job.result()[0].data.c.get_counts() == {"111111": 5}
    with pytest.raises(ServiceFailed, match="has 100 qubits, the device"):
        QiskitSampler(anywhere).run([QuantumCircuit(100, 1)])
