"""What the service tells before a task is submitted, and why a task waits."""

from __future__ import annotations

import random
from typing import Any

import pytest

from qtide.backends.payloads.payload import Burst, encode
from qtide.core.world.virtual import VirtualWorld
from qtide.service.device.estimates import StartLearner
from qtide.service.intake import Submission
from qtide.service.policies.policy import POLICIES
from qtide.service.task import Caller
from tests.service.simulation import Site

ADA, BOB = Caller("ada"), Caller("bob")


def burst(seconds: float) -> Submission:
    return Submission("dev", encode(Burst(seconds)))


@pytest.mark.parametrize("policy", ["fifo", "fair", "shortest"])
def test_nine_of_ten_tasks_start_within_the_interval_that_was_told(policy: str) -> None:
    """Users come at random; each estimate is compared with the start of the task it was for."""
    site = Site(VirtualWorld(1), {"policy": policy})
    chance = random.Random(7)
    told: list[tuple[list[float], Any]] = []

    async def user(name: str) -> None:
        for _ in range(150):
            await site.world.sleep(chance.expovariate(1 / 6.0))
            seconds = chance.choice((0.1, 1.0, 3.0))
            caller = Caller(name)
            found = await site.service.estimate(caller, burst(seconds))
            task = await site.service.submit(caller, burst(seconds))
            if found["based_on"] >= 20:
                told.append((found["likely_start"], task))

    async def main() -> None:
        await site.open()
        await site.world.sleep(5.0)
        await site.world.all_of([user(name) for name in ("ada", "bob", "cyd")])
        await site.settle()

    site.world.run(main(), until=1e6)
    hits = sum(low - 0.05 <= task.started <= high + 0.05 for (low, _, high), task in told)
    assert len(told) > 300
    assert hits / len(told) >= 0.88


def test_an_estimate_accepts_nothing_and_tells_what_is_left() -> None:
    site = Site(VirtualWorld(), {}, quotas={"user": {"qpu_seconds": 100.0}})
    found: list[dict[str, Any]] = []

    async def main() -> None:
        await site.open()
        await site.world.sleep(2.0)
        site.world.start(site.submit(ADA, 30.0))
        await site.world.sleep(1.0)
        found.append(await site.service.estimate(ADA, burst(20.0)))
        await site.settle()

    site.world.run(main(), until=1e5)
    [estimate] = found
    assert len(site.rows()) == 1
    assert (estimate["qpu_seconds"], estimate["fixed_seconds"]) == (20.0, 20.0)
    assert estimate["left_afterwards"][0]["qpu_seconds_left"] == pytest.approx(50.0)
    assert estimate["expected_end"] - estimate["expected_start"] == pytest.approx(20.0)
    assert estimate["position"] == 1


@pytest.mark.parametrize("policy", POLICIES.names())
def test_a_waiting_task_is_explained(policy: str) -> None:
    site = Site(VirtualWorld(), {"policy": policy})
    said: list[dict[str, Any]] = []

    async def main() -> None:
        await site.open()
        await site.world.sleep(2.0)
        for caller in (ADA, BOB, ADA):
            site.world.start(site.submit(caller, 10.0))
            await site.world.sleep(1.0)
        last = site.accepted[-1]
        said.append(site.service.why(ADA, last.id))
        said.append(site.service.why(ADA, site.accepted[0].id))
        await site.settle()
        said.append(site.service.why(ADA, last.id))

    site.world.run(main(), until=1e5)
    waits, runs, over = said
    assert waits["tasks_ahead"] == 1 and waits["seconds_ahead"] == pytest.approx(10.0)
    assert waits["sentences"][0].startswith("the device is busy for about 7")
    assert any(policy in sentence for sentence in waits["sentences"])
    assert "max_wait" in waits["sentences"][-1]
    assert runs["sentences"] == ["the task is on the device"]
    assert over["sentences"] == ["the task is done"]


def test_before_enough_starts_the_interval_is_wide() -> None:
    low, usual, high = StartLearner().likely(10.0)
    assert low < 3 and usual == pytest.approx(10.0) and high > 40
