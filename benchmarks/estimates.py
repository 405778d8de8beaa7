"""Whether tasks start within the interval that `estimate` told: nine of ten should.

The whole service runs in virtual time, with users who come at random, as often as the load says,
and submit tasks of very different lengths, which take up to a third more or less than expected.
Each asks for an estimate right before it submits. The peer is the plain outlook, which assumes
that nothing else is submitted: how often the real start is within a fifth of the wait that it
tells. The bound is the share that the interval promises.
"""

from __future__ import annotations

import random
from statistics import median
from typing import Any

from claims import Claim, at_least, conclude

from qtide.backends.payloads.payload import Burst, encode
from qtide.core.world.virtual import VirtualWorld
from qtide.service.configuration import Configuration
from qtide.service.intake import Submission
from qtide.service.service import Service
from qtide.service.task import Caller, ServiceTask
from qtide.service.virtual_service import Fate, SimulatedDevice, SimulatedStore

POLICIES = ("fifo", "fair", "shortest", "priority", "jobs")
LOADS = (0.6, 0.9)
USERS, EACH = 6, 120
SECONDS = (0.1, 0.5, 2.0, 10.0)
SLACK = 0.05
"""Seconds by which a start may be outside, as much as `estimate` calls the same."""
Told = tuple[dict[str, Any], ServiceTask]


def told(policy: str, load: float) -> list[Told]:
    """The estimates of all tasks that had enough starts before them, with the tasks."""
    world = VirtualWorld(1)
    chance = random.Random(f"{policy} {load}")
    devices = {"dev": {"kind": "burst", "policy": policy}}
    service = Service(
        Configuration.model_validate({"devices": devices}),
        world,
        SimulatedStore(world),
        SimulatedDevice(world, lambda _: Fate(share=chance.uniform(0.7, 1.3))),
        random.Random(1),
    )
    pause = USERS * sum(SECONDS) / len(SECONDS) / load
    found: list[Told] = []

    async def user(number: int) -> None:
        for _ in range(EACH):
            await world.sleep(chance.expovariate(1 / pause))
            caller = Caller(f"user {number}", job=number)
            task = Submission(
                "dev", encode(Burst(chance.choice(SECONDS))), priority=chance.choice((0, 0, 3))
            )
            estimate = await service.estimate(caller, task)
            accepted = await service.submit(caller, task)
            if estimate["based_on"] >= 20:
                found.append((estimate, accepted))

    async def main() -> None:
        await service.open()
        await world.sleep(5.0)
        await world.all_of([user(number) for number in range(USERS)])
        while not all(task.over for _, task in found):
            await world.sleep(10.0)
        await service.close()

    world.run(main(), until=1e8)
    return found


def main() -> None:
    """Compare what was told with what happened."""
    claims: list[Claim] = []
    print(f"{'policy':10} {'load':>5} {'tasks':>6} {'within':>7} {'plain':>6} {'width s':>8}")
    for policy in POLICIES:
        for load in LOADS:
            found = told(policy, load)
            within = plain = 0
            widths = []
            for estimate, task in found:
                low, _, high = estimate["likely_start"]
                start = task.started or 0.0
                wait = estimate["expected_start"] - task.submitted
                within += low - SLACK <= start <= high + SLACK
                plain += abs(start - estimate["expected_start"]) <= max(SLACK, wait / 5)
                widths.append(high - low)
            share = within / len(found)
            print(
                f"{policy:10} {load:>5} {len(found):>6} {share:>7.3f} {plain / len(found):>6.3f}"
                f" {median(widths):>8.2f}"
            )
            claims.append(
                at_least(f"starts within the interval, {policy}, load {load}", share, 0.9)
            )
    conclude("estimates", claims)


if __name__ == "__main__":
    main()
