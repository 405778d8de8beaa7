import json
import os
import subprocess
import sys

import pytest
from qiskit import QuantumCircuit, transpile
from qiskit.primitives import BackendSamplerV2
from qiskit.providers import JobStatus

from qtide.backends.client.backend import Backend
from qtide.backends.client.client import Client, ServiceFailed, TaskFailed
from qtide.core.errors import UsageError
from qtide.service.local_service import LocalService
from tests.backends.client.circuits import bell, distance, three_registers

ELSEWHERE = """
import json, sys
from qtide.backends.client.backend import Backend
from qtide.backends.client.client import Client
print(json.dumps(Backend(Client(), sys.argv[1]).retrieve_job(sys.argv[2]).result().get_counts()))
"""
FAIR = {"00": 1, "11": 1}


@pytest.mark.parametrize("device", ["star", "complete", "line"])
@pytest.mark.parametrize("level", [0, 1, 3])
def test_what_the_transpiler_makes_is_what_the_device_takes(
    client: Client, device: str, level: int
) -> None:
    backend = Backend(client, device)
    assert backend.simulator
    circuits = [_everything(), bell()]
    made = transpile(circuits, backend, optimization_level=level, seed_transpiler=1)
    first, second = backend.run(made, shots=4000, seed_simulator=7).result().get_counts()
    assert distance(second, FAIR) < 0.05
    assert distance(first, {"000": 1, "111": 1}) < 0.05


def _everything() -> QuantumCircuit:
    """Gates and connections between qubits that no device has all of."""
    circuit = QuantumCircuit(3)
    circuit.h(0)
    circuit.ccx(0, 1, 2)
    circuit.t(1)
    circuit.cx(0, 2)
    circuit.swap(1, 2)
    circuit.cx(0, 2)
    circuit.rzz(0.3, 0, 1)
    circuit.measure_all()
    return circuit


def test_counts_and_memory_are_written_as_qiskit_writes_them(client: Client) -> None:
    backend = Backend(client, "star")
    result = backend.run(transpile(three_registers(), backend), shots=5).result()
    assert result.get_counts() == {"110 1 01": 5}
    assert result.get_memory() == ["110 1 01"] * 5


def test_a_result_is_found_by_the_circuit_and_its_name(client: Client) -> None:
    backend = Backend(client, "star")
    pair, registers = transpile([bell(), three_registers()], backend)
    result = backend.run([registers, pair], shots=50).result()
    assert sum(result.get_counts(pair).values()) == 50
    assert sum(result.get_counts("bell").values()) == 50
    assert result.results[1].header["metadata"] == {"about": "a pair"}
    assert (result.backend_name, result.success) == ("star", True)


def test_bits_outside_of_registers_are_counted(client: Client) -> None:
    backend = Backend(client, "complete")
    circuit = QuantumCircuit(2, 2)
    circuit.x(1)
    circuit.measure([0, 1], [0, 1])
    assert backend.run(circuit, shots=3).result().get_counts() == {"10": 3}


def test_any_process_of_the_user_fetches_the_result(service: LocalService, client: Client) -> None:
    backend = Backend(client, "star")
    job = backend.run(transpile(bell(), backend), shots=300)
    variables = {"QTIDE_URL": service.url, "QTIDE_TOKEN": service.token("ada")}
    command = [sys.executable, "-c", ELSEWHERE, "star", job.job_id()]
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == job.result().get_counts()
    with pytest.raises(ServiceFailed, match="you have no task"):
        Backend(service.client("bob"), "star").retrieve_job(job.job_id())


def test_a_job_is_cancelled(client: Client) -> None:
    backend = Backend(client, "slow")
    before = backend.run(transpile(bell(), backend), shots=10_000)
    job = backend.run(transpile(bell(), backend), shots=10_000)
    assert job.queue_position() == 1
    assert job.status() is JobStatus.QUEUED
    assert "no other waiting task is before it" in job.status_message()
    assert job.cancel() is True
    assert job.status() is JobStatus.CANCELLED
    assert job.cancel() is False
    assert before.cancel() is True
    with pytest.raises(TaskFailed, match="cancelled"):
        job.result(timeout=60)


def test_an_estimate_tells_the_fixed_part_and_the_part_per_shot(client: Client) -> None:
    found = client.estimate([bell().decompose()], "complete", shots=100)
    assert found["qpu_seconds"] > 0 and found["shots"] == 100
    timed = client.estimate(transpile(bell(), Backend(client, "slow")), "slow", shots=50)
    assert (timed["fixed_seconds"], timed["seconds_per_shot"]) == pytest.approx((2.0, 0.02))
    assert timed["qpu_seconds"] == pytest.approx(3.0) and timed["known"]
    low, usual, high = timed["likely_start"]
    assert low <= usual <= high


def test_what_the_device_refuses_is_said(client: Client) -> None:
    backend = Backend(client, "star")
    with pytest.raises(ServiceFailed, match="the device has no 'h'"):
        backend.run(bell())
    with pytest.raises(UsageError, match="has no option 'shotz'; it has shots, seed_simulator"):
        backend.run(transpile(bell(), backend), shotz=3)
    with pytest.raises(UsageError, match="'annealer' takes no Qiskit circuits"):
        Backend(client, "annealer")
    bare = transpile(bell(), backend)
    for submitted in (backend.run, lambda one, key: client.submit(one, "star", key=key)):
        with pytest.raises(ServiceFailed, match="a key is 1 to 200 printable ASCII characters"):
            submitted(bare, key="two words")


def test_who_used_up_their_time_of_the_service_waits_for_more(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the service says, if that is no more than it may be away."""
    rest = {"retry_after": 0.01}
    answers = iter([ServiceFailed("later", 429, rest)] * 2)

    def asked(*request: str) -> str:
        for each in answers:
            raise each
        return "welcome"

    mine = Client(client.access.url, client.access.token)
    monkeypatch.setattr(mine, "_asked", asked)
    assert mine.call("GET", "/") == "welcome"
    answers = iter([ServiceFailed("much later", 429, {"retry_after": 3600.0})])
    with pytest.raises(ServiceFailed, match="much later"):
        mine.call("GET", "/")


def test_options_of_the_backend_hold_for_every_run(client: Client) -> None:
    backend = Backend(client, "star")
    backend.set_options(shots=7, seed_simulator=3)
    circuit = transpile(bell(), backend)
    first, second = (backend.run(circuit).result().get_memory() for _ in range(2))
    assert len(first) == 7
    assert first == second
    assert backend.max_circuits == 1000


def test_qiskits_own_sampler_runs_on_it(client: Client) -> None:
    backend = Backend(client, "star")
    [answer] = BackendSamplerV2(backend=backend).run([transpile(bell(), backend)]).result()
    assert distance(answer.data.meas.get_counts(), FAIR) < 0.15
