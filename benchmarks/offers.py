"""`plan vqpus` against a real service: does the wait that it promises hold?

For each of 20 cases, the planner says how many virtual QPUs to offer for a longest mean wait. So
many clients then repeat the closed loop at a real service, over HTTP: half of the cases with
constant times, half with random ones. The planner knows what a payload occupies the device beside
its own time, which is measured first: here, payloads take only tenths of a second. A promise is
kept if the measured mean wait is not above the limit by more than two standard errors.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean, stdev

from claims import Parts, at_least, conclude

from qtide.backends.client.client import Client
from qtide.backends.models.qpu_model import QpuModel, ServiceModel
from qtide.backends.models.site_model import SiteModel
from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService
from qtide.twin.capacity import Loop, best_offer

DEVICE = '[devices.qpu]\nkind = "burst"\nprofile = "annealer"\npolicy = "fair"\nslots = 64\n'
SECONDS = 10.0
"""How long the clients of a case go on."""
LIMIT = 60.0


@dataclass(frozen=True)
class OfferCase:
    """A loop, and the longest mean wait of its payloads."""

    loop: Loop
    longest: float
    fixed: bool

    @staticmethod
    def of(number: int) -> OfferCase:
        """Draw a case."""
        chance = Random(number)
        quantum = chance.choice((0.1, 0.2, 0.4))
        loop = Loop(quantum, quantum * chance.choice((1.0, 3.0, 8.0)))
        return OfferCase(loop, quantum * chance.choice((0.3, 1.0, 3.0)), number % 2 == 0)


def client(access: Client, case: OfferCase, seed: int, apart: float) -> list[float]:
    """Repeat the loop; return the seconds that each payload waited."""
    chance, waits = Random(seed), []
    time.sleep(apart)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        quantum, classical = case.loop.quantum, case.loop.classical
        if not case.fixed:
            quantum, classical = chance.expovariate(1 / quantum), chance.expovariate(1 / classical)
        time.sleep(classical)
        task = access.submit(Burst(quantum), "qpu", seed=seed, wait=30.0)
        task.result(LIMIT)
        waits.append(max(0.0, task.response["started"] - task.response["submitted"]))
    return waits[len(waits) // 10 :]


BURST, BURSTS = 0.05, 40
"""Seconds and number of the payloads that show what each takes beside its own time."""


def beside(access: Client) -> float:
    """Seconds that a payload occupies the device beside its own."""
    tasks = [access.submit(Burst(BURST), "qpu", seed=n, wait=30.0) for n in range(BURSTS)]
    for each in tasks:
        each.result(LIMIT)
    started: list[float] = [each.response["started"] for each in tasks]
    return max(0.0, (max(started) - min(started)) / (BURSTS - 1) - BURST)


def is_kept(service: LocalService, case: OfferCase, more: float) -> bool:
    """Plan a case, measure it, and tell whether the wait is as promised."""
    spread = "fixed" if case.fixed else "exponential"
    model = SiteModel(qpu=QpuModel(spread=spread), service=ServiceModel("fair"))  # type: ignore[arg-type]  # one of its words
    loop = Loop(case.loop.quantum + more, case.loop.classical)
    offer, rows = best_offer(loop, model, case.longest)
    said = next(row.wait.mean for row in rows if row.jobs == offer)
    apart = (case.loop.quantum + case.loop.classical) / offer
    with ThreadPoolExecutor(offer) as pool:
        done = [
            pool.submit(client, service.client(f"user {n}"), case, n, apart * n)
            for n in range(offer)
        ]
        waits = [wait for each in done for wait in each.result()]
    error = stdev(waits) / len(waits) ** 0.5
    good: bool = fmean(waits) - 2 * error <= case.longest
    print(
        f"q {case.loop.quantum:g} c {case.loop.classical:g} {spread:11} limit "
        f"{case.longest:.3f}: {offer} vQPUs, twin {said:.3f}, measured {fmean(waits):.3f} "
        f"± {error:.3f} of {len(waits)}{'' if good else '  BROKEN'}",
        flush=True,
    )
    return good


def main() -> None:
    """Plan and measure every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20)
    Parts.options(parser)
    options = parser.parse_args()
    parts = Parts(options)
    with tempfile.TemporaryDirectory() as folder, LocalService(Path(folder), DEVICE) as service:
        access = service.client("user 0")
        access.run(Burst(0.01), "qpu")  # starts the device
        more = beside(access)
        print(f"a payload takes {1000 * more:.1f} ms beside its own time", flush=True)
        for number in range(options.cases):
            if number not in parts.known and not parts.over:
                parts.add(number, is_kept(service, OfferCase.of(number), more))
    good = sum(parts.known.values())
    conclude("offers", [at_least("promised waits kept", good, options.cases)])


if __name__ == "__main__":
    main()
