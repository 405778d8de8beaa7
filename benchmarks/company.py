"""Circuits of several users at the same time on a grid of 20 qubits: what is gained, what it costs.

The circuits are those of `routing.py`, of three to five qubits, transpiled for the grid by their
users. The device is emulated with noise, crosstalk and a timing profile. The same circuits arrive
all at once at a new service that runs one, two, three or four at a time. Throughput is circuits per
second of the device, from its books; fidelity is Hellinger's against the exact distribution, its
mean over all circuits. The peer is the same device with one circuit at a time.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from claims import Claim, at_least, at_most, conclude
from routing import FAMILIES, distribution, hellinger

from qtide.backends.client.backend import Backend
from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService

SHOTS, CIRCUITS = 2000, 36
DEVICE = """
[devices.grid]
kind = "grid"
profile = "superconducting"
policy = "fifo"
noise = 0.2
crosstalk = 0.5
at_once = {at_once}
"""


def main() -> None:
    """Run the circuits one at a time, then several."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    chance = random.Random(7)
    circuits = [chance.choice(FAMILIES)(chance.randint(3, 5), chance) for _ in range(CIRCUITS)]
    exact = [distribution(circuit) for circuit in circuits]
    print(f"{CIRCUITS} circuits of {SHOTS} shots on 4 x 5 qubits")
    print(f"{'at once':>7} {'circuits/s':>10} {'busy s':>8} {'fidelity':>9} {'lost %':>7}")
    found: dict[int, tuple[float, float]] = {}
    for at_once in range(1, most + 1):
        busy, fidelity = _measured(at_once, circuits, exact)
        found[at_once] = (CIRCUITS / busy, fidelity)
        lost = 100 * (1 - fidelity / found[1][1])
        print(
            f"{at_once:>7} {CIRCUITS / busy:>10.3f} {busy:>8.2f} {fidelity:>9.4f} {lost:>7.2f}",
            flush=True,
        )
    claims: list[Claim] = []
    for at_once in range(2, most + 1):
        gain = found[at_once][0] / found[1][0]
        claims.append(at_least(f"throughput of {at_once} at once / one", gain, 0.85 * at_once))
    lost = 1 - found[3][1] / found[1][1]
    claims.append(at_most("fidelity lost by three at once, share", lost, 0.02))
    conclude("company", claims)


def _measured(at_once: int, circuits: list[Any], exact: list[Any]) -> tuple[float, float]:
    """The device's busy seconds by its books, and the mean fidelity."""
    from qiskit import transpile

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalService(Path(folder), DEVICE.format(at_once=at_once)) as service,
    ):
        client = service.client("ada")
        client.started_device("grid")
        backend = Backend(client, "grid")
        fitted = [transpile(each, backend, seed_transpiler=1) for each in circuits]
        first = client.submit(Burst(300.0), "grid")  # until all have arrived
        tasks = [
            client.submit(each, "grid", shots=SHOTS, seed=number, beside_others=True)
            for number, each in enumerate(fitted)
        ]
        first.cancel()
        answers = [task.result(300.0)[0].counts() for task in tasks]
        rows = [task.refresh().response for task in tasks]
    used = sum(row["qpu_seconds"] for row in rows)
    span = max(row["ended"] for row in rows) - min(row["started"] for row in rows)
    pairs = zip(answers, exact, strict=True)
    fidelity = mean(hellinger(counts, truth) for counts, truth in pairs)
    print(f"        (from the first start to the last answer: {span:.2f} s)", file=sys.stderr)
    return used, fidelity


if __name__ == "__main__":
    main()
