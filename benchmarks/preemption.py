"""A short promised task behind a long one on a real service: how soon it starts, what that costs.

The device is an emulated one of the service with a timing profile. The bound for the start is the
chunk that its operator set, plus 50 ms; the bound for the device's time is what the same tasks take
without giving way, which is their expected time. The answer of the long task is compared, bit for
bit, with that of the same task on a device that never gives way.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from claims import at_least, at_most, conclude

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService

CHUNK, SHORT, MORE = 0.2, 0.05, 0.05
LONG_S = 10.0
ROUNDS, PER_ROUND = 4, 4
DEVICES = """
[devices.pausing]
kind = "star"
profile = "superconducting"
policy = "fifo"
chunk = {chunk}

[devices.whole]
kind = "star"
profile = "superconducting"
policy = "fifo"
"""


def main() -> None:
    """Let long tasks run, with short promised ones behind each."""
    from qiskit import QuantumCircuit

    circuit = QuantumCircuit(3, 3)
    circuit.rx(1.0, range(3))
    circuit.cz(0, 2)
    circuit.measure(range(3), range(3))
    waits: list[float] = []
    lost: list[float] = []
    refused = same = gave_way = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalService(Path(folder), DEVICES.format(chunk=CHUNK)) as service,
    ):
        client = Client(service.url, service.token("ada"))
        profile = client.started_device("pausing")["profile"]
        shots = round((LONG_S - profile["payload_s"]) / profile["shot_s"])
        try:
            client.submit(Burst(5.0), "whole").refresh()
            client.submit(Burst(SHORT), "whole", max_wait=CHUNK + MORE)
            print("the device without a chunk promised the short task as well", file=sys.stderr)
        except ServiceFailed:
            print(f"without a chunk, a start within {CHUNK + MORE:g} s is refused (as it must be)")
        peer = client.submit([circuit], "whole", shots=shots, seed=1)
        print(f"{'round':>5} {'shorts':>6} {'longest wait ms':>15} {'device s':>9} {'lost %':>7}")
        for number in range(ROUNDS):
            long = client.submit([circuit], "pausing", shots=shots, seed=1)
            while not long.refresh().response["started"]:
                time.sleep(0.01)
            shorts = []
            for _ in range(PER_ROUND):
                time.sleep(1.3)
                try:
                    shorts.append(
                        client.submit(Burst(SHORT), "pausing", max_wait=CHUNK + MORE, wait=5.0)
                    )
                except ServiceFailed:
                    refused += 1
            answer = long.result(120.0)
            mine = [_wait(task.refresh().response) for task in shorts]
            waits += mine
            tasks = [each.refresh().response for each in (long, *shorts)]
            busy = sum(each["qpu_seconds"] for each in tasks)
            span = max(each["ended"] for each in tasks) - long.response["submitted"]
            expected = LONG_S + SHORT * len(shorts)
            lost.append(max(busy, span) / expected - 1)
            gave_way += long.response["share"] > 0
            same += answer == peer.result(120.0)
            print(
                f"{number:>5} {len(shorts):>6} {1e3 * max(mine, default=0.0):>15.0f}"
                f" {busy:>9.3f} {100 * lost[-1]:>7.2f}"
            )
    claims = [
        at_most("longest wait of a promised task behind a long one, s", max(waits), CHUNK + MORE),
        at_most("promised tasks that were refused", refused, 0),
        at_most("device time lost, share", max(lost), 0.01),
        at_least("long tasks that gave way", gave_way, ROUNDS),
        at_least("long tasks with the same answer as the peer, bit for bit", same, ROUNDS),
    ]
    conclude("preemption", claims)


def _wait(task: dict[str, float]) -> float:
    return task["started"] - task["submitted"]


if __name__ == "__main__":
    main()
