"""Circuits over three devices of different noise and queues: routed, first free, best fidelity.

The circuits are of the families of MQT Bench (GHZ, W state, Deutsch-Jozsa, Bernstein-Vazirani, QFT,
real amplitudes, a Trotter step), of three to five qubits. The devices are emulated with noise and a
timing profile, and each has other users' work in its queue. The same circuits arrive at the same
rate at a new service for each rule: `any:gate`, the device that is free first, and the device of
the best fidelity. Completion is the mean time from submission to answer; fidelity is Hellinger's,
against the exact distribution.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from math import pi, sqrt
from pathlib import Path
from statistics import mean
from typing import Any

from claims import at_least, at_most, conclude

from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService

SHOTS, CIRCUITS, EVERY = 400, 48, 0.25
DEVICES = """
[devices.best]
kind = "gate"
qubits = 5
noisy = true
noise = 0.05
profile = "superconducting"
policy = "fifo"

[devices.middle]
kind = "gate"
qubits = 5
noisy = true
noise = 0.08
profile = "superconducting"
policy = "fifo"

[devices.worst]
kind = "gate"
qubits = 5
noisy = true
noise = 0.3
profile = "superconducting"
policy = "fifo"
"""
QUEUES = {"best": 3.0, "middle": 1.0, "worst": 0.0}
"""Seconds of others' work before the circuits arrive."""

Rule = Callable[[Client, dict[str, float]], str]


def routed(_: Client, __: dict[str, float]) -> str:
    """Qtide's own choice."""
    return "any:gate"


def first_free(client: Client, _: dict[str, float]) -> str:
    """The device with the shortest expected wait."""
    devices: dict[str, float] = {d["name"]: d["expected_wait"] for d in client.devices()}
    return min(devices, key=lambda name: (devices[name], name))


def best_fidelity(_: Client, fidelities: dict[str, float]) -> str:
    """The device that should disturb circuits least."""
    return max(fidelities, key=lambda name: fidelities[name])


def main() -> None:
    """Run the circuits under each rule, and compare."""
    chance = random.Random(7)
    circuits = [chance.choice(FAMILIES)(chance.randint(3, 5), chance) for _ in range(CIRCUITS)]
    exact = [distribution(circuit) for circuit in circuits]
    print(f"{'rule':14} {'completion s':>12} {'last s':>7} {'fidelity':>9}  by device")
    found = {rule.__name__: _measured(rule, circuits, exact) for rule in RULES}
    ours, best, free = (found[rule.__name__] for rule in RULES)
    conclude(
        "routing",
        [
            at_most("completion / best fidelity's", ours[0] / best[0], 0.7),
            at_most("fidelity lost against best fidelity's, share", 1 - ours[1] / best[1], 0.02),
            at_least("fidelity gained over first free's, share", ours[1] / free[1] - 1, 0.0),
        ],
    )


def _measured(rule: Rule, circuits: list[Any], exact: list[Any]) -> tuple[float, float]:
    """Mean completion and mean fidelity under one rule."""
    with tempfile.TemporaryDirectory() as folder, LocalService(Path(folder), DEVICES) as service:
        client = Client(service.url, service.token("ada"))
        fidelities = {}
        for name, seconds in QUEUES.items():
            client.started_device(name)
            fidelities[name] = -float(name != "best") - float(name == "worst")
            client.run(circuits[0], name, shots=1)  # starts what checks payloads
            client.submit(Burst(seconds), name)
        began, tasks = time.time(), []
        for number, circuit in enumerate(circuits):
            time.sleep(max(0.0, began + number * EVERY - time.time()))
            tasks.append(client.submit(circuit, rule(client, fidelities), shots=SHOTS, seed=number))
        answers = [task.result(300.0)[0].counts() for task in tasks]
        rows = [task.refresh().response for task in tasks]
    completion = mean(row["ended"] - row["submitted"] for row in rows)
    pairs = zip(answers, exact, strict=True)
    fidelity = mean(hellinger(counts, truth) for counts, truth in pairs)
    last = max(row["ended"] for row in rows) - began
    share = {name: sum(row["device"] == name for row in rows) for name in QUEUES}
    print(f"{rule.__name__:14} {completion:>12.2f} {last:>7.1f} {fidelity:>9.4f}  {share}")
    sys.stdout.flush()
    return completion, fidelity


def distribution(circuit: Any) -> dict[str, float]:
    """The exact probabilities of a circuit's outcomes."""
    from qiskit.quantum_info import Statevector

    bare = circuit.remove_final_measurements(inplace=False)
    found: dict[str, float] = Statevector(bare).probabilities_dict()
    return found


def hellinger(counts: dict[str, int], truth: dict[str, float]) -> float:
    """Hellinger's fidelity between measured counts and exact probabilities."""
    total = sum(counts.values())
    overlap = sum(sqrt(n / total * truth.get(key, 0.0)) for key, n in counts.items())
    return overlap**2


def _circuit(qubits: int) -> Any:
    from qiskit import QuantumCircuit

    return QuantumCircuit(qubits, qubits)


def _measure(made: Any) -> Any:
    made.measure(range(made.num_qubits), range(made.num_qubits))
    return made


def ghz(qubits: int, _: random.Random) -> Any:
    """GHZ state."""
    made = _circuit(qubits)
    made.h(0)
    for qubit in range(qubits - 1):
        made.cx(qubit, qubit + 1)
    return _measure(made)


def w_state(qubits: int, _: random.Random) -> Any:
    """W state."""
    from math import acos

    made = _circuit(qubits)
    made.x(0)
    for qubit in range(qubits - 1):
        half = acos(sqrt(1 / (qubits - qubit)))
        made.ry(half, qubit + 1)  # a controlled rotation by twice the angle
        made.cx(qubit, qubit + 1)
        made.ry(-half, qubit + 1)
        made.cx(qubit, qubit + 1)
        made.cx(qubit + 1, qubit)
    return _measure(made)


def deutsch_jozsa(qubits: int, chance: random.Random) -> Any:
    """Deutsch-Jozsa with a balanced oracle."""
    made = _circuit(qubits)
    made.x(qubits - 1)
    made.h(range(qubits))
    for qubit in range(qubits - 1):
        if chance.random() < 0.7:
            made.cx(qubit, qubits - 1)
    made.h(range(qubits))
    return _measure(made)


def bernstein_vazirani(qubits: int, chance: random.Random) -> Any:
    """Bernstein-Vazirani with a sparse secret."""
    made = _circuit(qubits)
    made.x(qubits - 1)
    made.h(range(qubits))
    made.cx(chance.randrange(qubits - 1), qubits - 1)
    made.h(range(qubits))
    return _measure(made)


def qft(qubits: int, chance: random.Random) -> Any:
    """Quantum Fourier transform of a basis state, and back of half of it."""
    made = _circuit(qubits)
    for qubit in range(qubits):
        if chance.random() < 0.5:
            made.x(qubit)
    for qubit in reversed(range(qubits)):
        made.h(qubit)
        for other in range(qubit):
            made.cp(pi / 2 ** (qubit - other), other, qubit)
    made.h(range(qubits))
    return _measure(made)


def real_amplitudes(qubits: int, chance: random.Random) -> Any:
    """A variational ansatz."""
    made = _circuit(qubits)
    for _ in range(3):
        for qubit in range(qubits):
            made.ry(chance.uniform(0, pi), qubit)
        for qubit in range(qubits - 1):
            made.cx(qubit, qubit + 1)
    return _measure(made)


def trotter(qubits: int, chance: random.Random) -> Any:
    """Steps of a transverse-field Ising model."""
    made = _circuit(qubits)
    for _ in range(chance.randint(1, 6)):
        for qubit in range(qubits - 1):
            made.rzz(0.3, qubit, qubit + 1)
        made.rx(0.4, range(qubits))
    return _measure(made)


FAMILIES = (ghz, w_state, deutsch_jozsa, bernstein_vazirani, qft, real_amplitudes, trotter)
RULES: tuple[Rule, ...] = (routed, best_fidelity, first_free)

if __name__ == "__main__":
    main()
