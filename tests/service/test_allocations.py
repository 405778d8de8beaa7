"""Allocations: reserved at acceptance, charged what was used, equal to the books."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.backends.clusters.slurm.commands import Slurm
from qtide.backends.payloads.payload import Burst, encode
from qtide.core.errors import UsageError
from qtide.core.world.virtual import VirtualWorld
from qtide.service.allocations import FOREVER, Allocation, AllocationPeriod, NothingLeft
from qtide.service.availability import Availability
from qtide.service.configuration import DAY, AvailabilityPlan
from qtide.service.intake import Submission
from qtide.service.queries import usage
from qtide.service.task import Caller, Conflict, Forbidden
from tests.service.simulation import OPERATOR, Site

ADA, BOB = Caller("ada", "physics"), Caller("bob", "physics")
PHYSICS, EVERYWHERE = ("physics", "", "dev"), ("physics", "", "")
HOUR = 3600.0


def allocation(
    whom: tuple[str, str, str],
    period: str,
    seconds: float,
    start: float = 0.0,
    end: float = FOREVER,
) -> Allocation:
    return Allocation(0, *whom, AllocationPeriod(period), seconds, start, end)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("period", "now", "begin", "end"),
    [
        ("day", "2026-11-18T12:34", "2026-11-18T00:00", "2026-11-19T00:00"),
        ("month", "2026-12-31T23:59", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("month", "2028-02-29T00:00", "2028-02-01T00:00", "2028-03-01T00:00"),
    ],
)
def test_periods_begin_at_midnight_utc(period: str, now: str, begin: str, end: str) -> None:
    assert allocation(PHYSICS, period, 10.0).span(at(now)) == (at(begin), at(end))


async def run(site: Site, caller: Caller, seconds: float) -> None:
    """Run a task to its end, or raise why it was refused."""
    submission = Submission("dev", encode(Burst(seconds, 1)))
    task = await site.service.submit(caller, submission)
    await site.service.wait(task, 1e9)


async def allocated(
    site: Site, whom: tuple[str, str, str], period: str, seconds: float, *between: float
) -> Allocation:
    wanted = allocation(whom, period, seconds, *between)
    return await site.service.operations.add_allocation(OPERATOR, wanted)


def test_what_an_account_may_use_in_a_day_is_refused_beyond_and_comes_back() -> None:
    world = VirtualWorld()
    site = Site(world, {})

    async def scene() -> None:
        await site.open()
        made = await allocated(site, PHYSICS, "day", 10.0)
        await run(site, ADA, 6.0)
        await run(site, Caller("eve", "maths"), 20.0)
        with pytest.raises(NothingLeft, match="account physics has 4 left of 10 QPU seconds of"):
            await run(site, BOB, 5.0)
        await run(site, BOB, 3.0)
        await site.kill()
        (left,) = site.service.allocations.left(ADA)
        assert left["used"] == pytest.approx(9.0, abs=1e-6) and left["reserved"] == 0.0
        await world.sleep(DAY)
        await run(site, BOB, 9.0)
        await site.service.operations.remove_allocation(OPERATOR, made.number)
        await run(site, BOB, 50.0)
        await site.settle()

    world.run(scene())


def test_a_grant_counts_between_its_dates_only() -> None:
    world = VirtualWorld()
    site = Site(world, {})

    async def scene() -> None:
        await site.open()
        await allocated(site, EVERYWHERE, "grant", 10.0, HOUR, 3 * HOUR)
        with pytest.raises(NothingLeft, match="may use its 10 QPU seconds of its grant from 1970"):
            await run(site, ADA, 1.0)
        with pytest.raises(Conflict, match="remove allocation 1 first"):
            await allocated(site, EVERYWHERE, "grant", 5.0, 2 * HOUR, 4 * HOUR)
        await world.sleep(HOUR)
        await run(site, ADA, 1.0)
        assert site.service.why_nothing_left(ADA) is None
        await world.sleep(2 * HOUR)
        with pytest.raises(NothingLeft, match="which ended at 1970-01-01 03:00 UTC"):
            await run(site, ADA, 1.0)
        assert "which ended at" in str(site.service.why_nothing_left(ADA))
        keep = Availability(site.service, cast(Slurm, None), AvailabilityPlan())
        assert [line for line in keep.lines() if line.startswith("account")] == [
            "account physics had 10 QPU seconds of its grant, which ended at 1970-01-01 03:00 UTC; "
            "ask the operator"
        ]
        await allocated(site, EVERYWHERE, "grant", 5.0, 3 * HOUR, 9 * HOUR)
        await run(site, ADA, 1.0)
        await site.settle()

    world.run(scene())


def test_waiting_tasks_reserve_and_cancelled_ones_release() -> None:
    world = VirtualWorld()
    site = Site(world, {})

    async def scene() -> None:
        await site.open()
        await allocated(site, ("", "ada", "dev"), "day", 10.0)
        tasks = [
            await site.service.submit(ADA, Submission("dev", encode(Burst(4.0)))) for _ in range(2)
        ]
        with pytest.raises(NothingLeft, match="8 are reserved by waiting tasks"):
            await run(site, ADA, 3.0)
        await site.service.cancel(ADA, tasks[1].id)
        await run(site, ADA, 5.0)
        rows = [row for row in site.service.quotas_left(ADA) if row["tasks"] is None]
        assert [(row["of"], row["name"], row["device"]) for row in rows] == [("user", "ada", "dev")]
        assert rows[0]["qpu_seconds_left"] == pytest.approx(1.0, abs=1e-3)
        await site.settle()

    world.run(scene())


def test_only_operators_allocate_and_only_what_makes_sense() -> None:
    world = VirtualWorld()
    site = Site(world, {})

    async def scene() -> None:
        await site.open()
        with pytest.raises(Forbidden, match="not an operator"):
            await site.service.operations.add_allocation(ADA, allocation(PHYSICS, "day", 1e9))
        with pytest.raises(UsageError, match="for an account or a user"):
            await allocated(site, ("", "", "dev"), "day", 1.0)
        with pytest.raises(UsageError, match="end after its start"):
            await allocated(site, PHYSICS, "grant", 1.0, 5.0, 5.0)
        with pytest.raises(UsageError, match="only a grant has dates"):
            await allocated(site, PHYSICS, "month", 1.0, 5.0, 6.0)
        await site.settle()

    world.run(scene())


owners = st.sampled_from([ADA, BOB, Caller("ada", "maths")])
work = st.lists(st.tuples(owners, st.floats(0.01, 2.0), st.floats(0.0, 3.0)), max_size=12)


@settings(max_examples=30)
@given(work, st.lists(st.integers(0, 11), max_size=2), st.integers(0, 10_000))
def test_balances_equal_the_books_whatever_is_killed(
    tasks: list[tuple[Caller, float, float]], kills: list[int], seed: int
) -> None:
    world = VirtualWorld()
    site = Site(world, {"retries": 99}, seed=seed)

    async def scene() -> None:
        await site.open()
        await allocated(site, PHYSICS, "grant", 1e6, 0.0, 1e9)
        await allocated(site, ("", "ada", ""), "grant", 1e6, 0.0, 1e9)
        for number, (caller, seconds, pause) in enumerate(tasks):
            world.start(site.submit(caller, seconds))
            await world.sleep(pause)
            if number in kills:
                await site.kill()
        await site.settle()
        used = site.store.read(usage(["account", "user"], None, None, None, world.now()))
        balances = {each["number"]: each for each in site.service.allocations.all()}
        for number, key, name in ((1, "account", "physics"), (2, "user", "ada")):
            booked = sum(row["qpu_seconds"] for row in used if row[key] == name)
            assert balances[number]["used"] == pytest.approx(booked, abs=1e-3)
            assert balances[number]["reserved"] == pytest.approx(0.0, abs=1e-6)

    world.run(scene())
    site.check()
