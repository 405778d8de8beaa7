"""A parameter sweep by one PUB, beside Qiskit's own estimator and beside single tasks.

    python benchmarks/primitives.py [SETS] [SHOTS]

The observable of a five-qubit ansatz is estimated for 1,000 parameter sets on one service with an
emulated device: by one PUB, by Qiskit's `BackendEstimatorV2` on the same backend, and by one task
per set and basis. Bytes are those of requests and answers together. Bare Aer runs the same
parametrised circuits in this process, without a service.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from claims import Claim, at_least, at_most, conclude
from qiskit.circuit.library import real_amplitudes
from qiskit.primitives import BackendEstimatorV2
from qiskit.quantum_info import SparsePauliOp
from qiskit_aer import AerSimulator

from qtide.backends.client.backend import Backend
from qtide.backends.client.client import Client
from qtide.backends.client.qiskit_estimator import QiskitEstimator
from qtide.backends.devices.estimation import measured
from qtide.backends.payloads.formats.pubs import Pub
from qtide.service.local_service import LocalService

DEVICES = """
[devices.gate]
kind = "gate"
qubits = 5
limit = 600

[limits]
validation_seconds = 3000  # per minute and user: two thousand single tasks are checked one by one
"""
OBSERVABLE = SparsePauliOp(["ZZIII", "IZZII", "IIZZI", "IIIZZ", "XXIII"], [1, 1, 1, 1, 0.5])
REPEATS = 3


class Counted:
    """Counts the bytes of what a client sends and receives."""

    def __init__(self, client: Client) -> None:
        self.bytes = 0
        pool = client._connections()  # the measurement has to see the bodies
        request = pool.request

        def counting(method: str, url: str, **words: Any) -> Any:
            answer = request(method, url, **words)
            self.bytes += len(words.get("body") or b"") + len(answer.data)
            return answer

        pool.request = counting  # type: ignore[method-assign, assignment]


def timed(counted: Counted, work: Callable[[], Any]) -> tuple[float, int, Any]:
    """Seconds, bytes and result of some work."""
    before, began = counted.bytes, time.perf_counter()
    found = work()
    return time.perf_counter() - began, counted.bytes - before, found


def bare(pub: Pub, shots: int) -> float:
    """Seconds that Aer alone takes for the same circuits, to the counts."""
    simulator = AerSimulator(method="statevector", max_parallel_threads=1)
    began = time.perf_counter()
    circuits = [measured(pub.circuit, setting.basis) for setting in pub.settings]
    binds = [dict(zip(each.parameters, pub.rows.T, strict=True)) for each in circuits]
    job = simulator.run(circuits, shots=shots, parameter_binds=binds, seed_simulator=1)
    counts = [each.data.counts for each in job.result().results]
    assert len(counts) == pub.executions
    return time.perf_counter() - began


def single_tasks(backend: Backend, circuit: Any, values: Any, shots: int) -> list[Any]:
    """Submit one task per set and basis, then wait for all."""
    pub = QiskitEstimator(backend).payload([(circuit, OBSERVABLE, values)]).pubs[0]
    bound = [
        measured(pub.circuit, setting.basis).assign_parameters(row)
        for row in pub.rows
        for setting in pub.settings
    ]
    jobs = [backend.run(one, shots=shots) for one in bound]
    return [job.result() for job in jobs]


def main() -> None:
    """Measure and conclude."""
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    shots = int(sys.argv[2]) if len(sys.argv) > 2 else 1024
    precision = 1 / math.sqrt(shots)
    circuit = real_amplitudes(5, reps=3).decompose()
    values = np.random.default_rng(1).uniform(-3, 3, (sets, circuit.num_parameters))
    with tempfile.TemporaryDirectory() as folder, LocalService(Path(folder), DEVICES) as service:
        client = service.client("ada")
        backend = Backend(client, "gate")
        counted = Counted(client)
        estimator = QiskitEstimator(backend, seed=1)
        pub = (circuit, OBSERVABLE, values)
        estimator.run([(circuit, OBSERVABLE, values[:2])], precision=precision).result()  # warm
        ours = [
            timed(counted, lambda: estimator.run([pub], precision=precision).result())
            for _ in range(REPEATS)
        ]
        prepared = estimator.payload([pub]).pubs[0]
        alone = min(bare(prepared, shots) for _ in range(REPEATS))
        theirs = timed(
            counted,
            lambda: BackendEstimatorV2(backend=backend).run([pub], precision=precision).result(),
        )
        single = timed(counted, lambda: single_tasks(backend, circuit, values, shots))
    seconds, size, result = min(ours, key=lambda each: each[0])
    apart = float(np.abs(result[0].data.evs - theirs[2][0].data.evs).max())
    print(f"{sets} parameter sets, {prepared.executions} circuits, {shots} shots each")
    print(f"{'':24} {'seconds':>10} {'bytes':>12}")
    for name, each in (("one PUB", (seconds, size)), ("BackendEstimatorV2", theirs[:2]),
                       ("single tasks", single[:2]), ("bare Aer", (alone, 0))):  # fmt: skip
        print(f"{name:24} {each[0]:10.3f} {each[1]:12,}")
    claims: list[Claim] = [
        at_least("bytes of single tasks / bytes of the PUB", single[1] / size, 20),
        at_least("seconds of single tasks / seconds of the PUB", single[0] / seconds, 5),
        at_most("seconds of the PUB / seconds of bare Aer", seconds / alone, 1.1),
        at_most("largest difference to BackendEstimatorV2's values", apart, 12 / math.sqrt(shots)),
    ]
    conclude("primitives", claims)


if __name__ == "__main__":
    main()
