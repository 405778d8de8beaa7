"""What users of IQM's own client do, as one program, since its import takes longest.

The environment names the service. Prints the outcome of each step, as JSON.
"""

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing import get_context
from typing import Any

from iqm.qiskit_iqm import (  # type: ignore[import-not-found]  # in an environment of its own
    IQMProvider,
)
from qiskit import QuantumCircuit, transpile

NOBODYS = "00000000-0000-4000-8000-000000000000"
LONG, TOO_LONG, TOO_MANY = 50_000, 100_000, 200_000
"""Shots: ten seconds of the device, more than the device takes, more than any device does."""


def backend(computer: str | None = None, **words: Any) -> Any:
    """The computer that the environment names, or another; older clients need it as an argument."""
    if computer is None and int(version("iqm-client").partition(".")[0]) >= 35:
        return IQMProvider().get_backend(**words)
    url, computer = os.environ["IQM_SERVER_URL"], computer or os.environ["IQM_QUANTUM_COMPUTER"]
    return IQMProvider(url, quantum_computer=computer).get_backend(**words)


def bell() -> QuantumCircuit:
    circuit = QuantumCircuit(2, name="bell")
    circuit.h(0)
    circuit.cx(0, 1)
    circuit.measure_all()
    return circuit


def flipped(qubit: int) -> QuantumCircuit:
    """Three qubits of which one is 1."""
    circuit = QuantumCircuit(3)
    circuit.x(qubit)
    circuit.measure_all()
    return circuit


def unmeasured() -> QuantumCircuit:
    circuit = QuantumCircuit(1)
    circuit.x(0)
    return circuit


def submit() -> str:
    computer = backend()
    job: str = computer.run(transpile(bell(), computer), shots=300).job_id()
    return job


def in_another_process(function: Callable[[], str]) -> str:
    """A fork, started before any thread: it need not import everything again."""
    with get_context("fork").Pool(1) as pool:
        return pool.apply_async(function).get(timeout=120)


def failure(step: Callable[[], Any]) -> dict[str, str]:
    try:
        step()
    except Exception as error:
        return {"type": type(error).__name__, "said": str(error)}
    return {}


def without_a_right_token() -> None:
    right = os.environ["IQM_TOKEN"]
    os.environ["IQM_TOKEN"] = "wrong"
    try:
        backend()
    finally:
        os.environ["IQM_TOKEN"] = right


def asked(client: Any) -> list[Any]:
    """What programs ask of the computer beside running circuits."""
    groups = [sorted(each) for each in client.get_feedback_groups()]
    qubits = client.get_static_quantum_architecture().qubits
    return [min(set(client.get_about()) & {"version"}), len(qubits), groups]


def steps(theirs: str) -> dict[str, Any]:
    computer = backend()
    circuit = transpile(bell(), computer)
    metrics = backend(use_metrics=True)
    batch = transpile([flipped(qubit) for qubit in range(3)], computer, optimization_level=0)
    long = computer.run(circuit, shots=LONG)
    cancelled = long.cancel()
    long.result()
    failed = backend("quick").run(circuit, shots=TOO_LONG)
    failed_result = failed.result()
    return {
        "bell": computer.run(circuit, shots=1000).result().get_counts(),
        "batch": computer.run(batch, shots=10).result().get_counts(),
        "metrics": metrics.run(transpile(bell(), metrics), shots=10).result().success,
        "asked": asked(computer.client),
        "retrieved": computer.retrieve_job(theirs).result().get_counts(),
        "cancelled": [cancelled, long.status().name],
        "failed": [failed_result.success, failed.status().name, str(failed.error_message())],
        "too many": failure(lambda: computer.run(circuit, shots=TOO_MANY)),
        "unmeasured": failure(lambda: computer.run(transpile(unmeasured(), computer))),
        "wrong token": failure(without_a_right_token),
        "unknown job": failure(lambda: computer.retrieve_job(NOBODYS).result()),
    }


if __name__ == "__main__":
    json.dump(steps(in_another_process(submit)), sys.stdout)
