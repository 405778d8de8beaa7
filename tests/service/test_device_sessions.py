"""Sessions: a device that one user holds for a while, charged while it is held."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.payloads.payload import Burst, encode
from qtide.core.errors import UsageError
from qtide.core.world.virtual import VirtualWorld
from qtide.service.allocations import Allocation, AllocationPeriod, NothingLeft
from qtide.service.configuration import DAY
from qtide.service.intake import Submission
from qtide.service.local_service import LocalService
from qtide.service.task import Caller, CannotPromise, Conflict, Forbidden
from tests.service.serving import Serve
from tests.service.simulation import OPERATOR, Site

ADA, BOB = Caller("ada"), Caller("bob")
SESSIONS = {"longest": 60.0, "idle": 5.0}


def site_with(steps: Any, **setup: Any) -> Site:
    """A site on which something was done once its device was up, and everything has ended."""
    site = Site(VirtualWorld(), {"policy": "fifo", "sessions": SESSIONS} | setup)

    async def body() -> None:
        await site.open()
        await site.world.sleep(5.0)
        await steps(site)
        await site.settle()

    site.world.run(body(), until=1e6)
    site.check()
    return site


def of(site: Site, user: str) -> list[Any]:
    return [row for row in site.rows() if row["user"] == user]


def test_the_tasks_of_a_session_start_at_once_and_others_wait_until_it_ends() -> None:
    async def steps(site: Site) -> None:
        site.world.start(site.hold(ADA, 30.0, 5.0, [1.0, 1.0, 1.0], 0.5))
        await site.world.sleep(0.5)
        site.world.start(site.submit(BOB, 1.0))
        await site.world.sleep(0.1)
        said = site.service.why(BOB, site.accepted[-1].id)["sentences"]
        assert said[0].startswith("a session holds the device, for another 29.")

    site = site_with(steps)
    session, *tasks = of(site, "ada")
    (other,) = of(site, "bob")
    assert all(row["started"] - row["submitted"] < 0.01 for row in tasks)
    assert other["started"] >= session["ended"]
    held = session["ended"] - session["started"]
    assert held == pytest.approx(4.5, abs=0.3)  # it was closed then
    assert session["used"] + sum(row["used"] for row in tasks) == pytest.approx(held)


@pytest.mark.parametrize(
    ("idle", "gap", "ended"), [(2.0, 50.0, 3.0), (5.0, 4.0, 60.0)], ids=["idle", "too long"]
)
def test_a_session_ends_by_itself(idle: float, gap: float, ended: float) -> None:
    """After its idle limit, or after its longest time; what is left waits like other tasks."""

    async def steps(site: Site) -> None:
        site.world.start(site.hold(ADA, 60.0, idle, [1.0] * 20, gap))

    session, *tasks = site_with(steps).rows()
    # whoever opened it looks every quarter of a second whether it has begun
    assert session["ended"] - session["started"] == pytest.approx(ended, abs=0.3)
    assert session["state"] == "done"
    assert all(row["state"] == "done" for row in tasks)


def test_a_task_that_would_end_after_the_session_waits_for_its_end() -> None:
    async def steps(site: Site) -> None:
        site.world.start(site.hold(ADA, 10.0, 5.0, [20.0], 0.0))

    session, task = site_with(steps).rows()
    assert session["ended"] - session["started"] == pytest.approx(5.0, abs=0.1)
    assert task["started"] == pytest.approx(session["ended"], abs=0.1)


def test_the_tasks_that_a_session_leaves_keep_their_owners_quota() -> None:
    """They take the seconds that the session reserved, then the others that are left today."""
    site = Site(
        VirtualWorld(),
        {"policy": "fifo", "sessions": SESSIONS},
        quotas={"user": {"qpu_seconds": 10.0}},
    )

    async def body() -> None:
        await site.open()
        await site.world.sleep(5.0)
        session = await site.service.submit(ADA, Submission("dev", encode(Burst(9.0)), idle=5.0))
        for seconds in (1.0, *[8.0] * 3):
            site.world.start(site.submit(ADA, seconds, session=session.id))
        await site.world.sleep(2.0)
        await site.service.cancel(ADA, session.id)
        await site.settle()

    site.world.run(body(), until=1e6)
    site.check()
    days = Counter[int]()
    for row in site.rows():
        days[row["started"] // DAY] += row["used"]
    assert max(days.values()) <= 10.0
    assert len(days) == 3
    assert site.rows()[1]["ended"] < 10.0, "the first one ran in the session"


def test_a_session_lends_what_it_reserved_of_an_allocation_to_its_tasks() -> None:
    async def steps(site: Site) -> None:
        whole = Allocation(0, "", ADA.user, "", AllocationPeriod.DAY, 10.0)
        await site.service.operations.add_allocation(OPERATOR, whole)
        session = await site.service.submit(ADA, Submission("dev", encode(Burst(10.0)), idle=1.0))
        for _ in range(3):
            site.world.start(site.submit(ADA, 3.0, session=session.id))
        await site.world.sleep(0.1)
        with pytest.raises(NothingLeft, match="has 0 left of 10 QPU seconds"):
            burst = encode(Burst(3.0))
            await site.service.submit(ADA, Submission("dev", burst, session=session.id))
        await site.world.sleep(20.0)
        (balance,) = site.service.allocations.all()
        assert balance["reserved"] == 0.0
        assert balance["used"] == pytest.approx(10.0, abs=0.1)

    assert len(site_with(steps).accepted) == 3


def test_a_session_takes_only_what_site_and_promises_allow() -> None:
    async def steps(site: Site) -> None:
        submit, burst = site.service.submit, encode(Burst(50.0))
        for idle, seconds in ((6.0, 50.0), (5.0, 61.0)):
            with pytest.raises(Forbidden, match="may hold dev for 60 s"):
                await submit(ADA, Submission("dev", encode(Burst(seconds)), idle=idle))
        with pytest.raises(Conflict, match="no open session"):
            await submit(ADA, Submission("dev", burst, session="none"))
        site.world.start(site.submit(BOB, 2.0, max_wait=20.0))
        await site.world.sleep(0.1)
        session = await submit(ADA, Submission("dev", burst, idle=5.0))
        with pytest.raises(Conflict, match="no open session"):
            await submit(BOB, Submission("dev", burst, session=session.id))
        await site.world.sleep(4.0)
        assert session.state == "running"
        with pytest.raises(CannotPromise):  # its time is not free to be promised
            await submit(BOB, Submission("dev", encode(Burst(1.0)), max_wait=1.0))
        await site.service.cancel(ADA, session.id)

    site_with(steps)


def test_a_device_without_sessions_refuses_them() -> None:
    async def steps(site: Site) -> None:
        with pytest.raises(Forbidden, match="takes no sessions"):
            await site.service.submit(ADA, Submission("dev", encode(Burst(1.0)), idle=1.0))

    site_with(steps, sessions=None)


def test_a_long_task_gives_way_to_a_promised_session() -> None:
    async def steps(site: Site) -> None:
        site.world.start(site.submit(BOB, 40.0))
        await site.world.sleep(1.0)
        terms = {"idle": 5.0, "max_wait": 1.0}
        session = await site.service.submit(
            ADA,
            Submission("dev", encode(Burst(20.0)), **terms),  # type: ignore[arg-type]
        )
        await site.world.sleep(1.0)
        assert session.state == "running"

    site = site_with(steps, chunk=0.5)
    (long,) = of(site, "bob")
    assert (long["state"], long["used"]) == ("done", pytest.approx(40.0))


holds = st.tuples(
    st.integers(1, 4).map("user {}".format),
    st.sampled_from((2.0, 12.0, 30.0)),
    st.sampled_from((0.5, 5.0)),
    st.lists(st.sampled_from((0.1, 1.0, 9.0)), max_size=5),
    st.sampled_from((0.0, 1.0, 4.0)),
)


@settings(max_examples=3 * settings().max_examples // 10)
@given(st.lists(holds, min_size=1, max_size=6), st.sampled_from(("fair", "fifo")))
def test_sessions_of_others_delay_nobody_beyond_the_policy(
    sessions: list[tuple[str, float, float, list[float], float]], policy: str
) -> None:
    """Each other user gets one session before a task that came after all of them."""

    async def steps(site: Site) -> None:
        for user, seconds, idle, tasks, gap in sessions:
            site.world.start(site.hold(Caller(user), seconds, idle, tasks, gap))
        await site.world.sleep(0.01)
        site.world.start(site.submit(BOB, 1.0))

    (mine,) = of(site_with(steps, policy=policy), "bob")
    lengths: dict[str, list[float]] = {}
    for user, seconds, *_ in sessions:
        lengths.setdefault(user, []).append(seconds)
    bound = sum((max if policy == "fair" else sum)(each) for each in lengths.values())
    assert mine["started"] - mine["submitted"] <= bound + len(sessions)


def test_a_batch_is_found_again_by_its_name(service: LocalService) -> None:
    """With what was cancelled and tried again."""
    client = Client(service.url, service.token("batcher"))
    batch = client.batch("scan", "dev")
    assert [batch.add(Burst(0.01, f"answer {n}")) for n in range(3)] == [0, 1, 2]
    batch.add(Burst(60.0, "long"))
    batch.cancel(3)
    batch.close()
    with pytest.raises(UsageError, match="closed"):
        batch.add(Burst(0.01))
    assert dict(batch.results()) == {n: f"answer {n}" for n in range(3)}
    assert batch.failed() == {3: "cancelled"}
    first = batch.tasks[1].id
    assert batch.retry(1).result(60.0) == "answer 1"
    again = client.batch("scan", "dev")
    assert again.partial() == {n: f"answer {n}" for n in range(3)}
    assert again.tasks[1].id == batch.tasks[1].id != first
    client.batch("scan/1", "dev").add(Burst(0.01))
    assert len(client.batch("scan/1", "dev")) == 1, "a retry is no task of another batch"
    running = client.submit(Burst(5.0), "dev")
    with pytest.raises(ServiceFailed, match="only one that ended"):
        client.retry(running.id)
    running.cancel()


REAL = """
[devices.dev]
kind = "burst"
sessions = {longest = 30.0, idle = 20.0}
"""
LOOP = """
from qtide.backends.client.client import Client
from qtide.backends.payloads.payload import Burst
for n in range(3):
    assert Client().run(Burst(0.01, n), "dev") == n
"""


def test_a_closed_loop_on_a_real_service(serving: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Python, and through a command that holds the device for a program."""
    service = serving(REAL)
    client, other = (Client(service.url, service.token(user)) for user in ("ada", "bob"))
    with client.session("dev", 30.0, idle=20.0) as session:
        waits = other.submit(Burst(0.01, "other"), "dev")
        assert [session.run(Burst(0.01, n)) for n in range(3)] == [0, 1, 2]
        assert waits.refresh().state == "queued"
    assert waits.result(30.0) == "other"
    held: float = session.result(30.0)["held"]
    assert session.response["qpu_seconds"] < held
    with pytest.raises(ServiceFailed, match="no open session"):
        session.submit(Burst(0.01))
    with other.session("dev", 30.0, idle=20.0), monkeypatch.context() as patch:
        waiting = client.session("dev", 30.0, idle=20.0)
        patch.setattr(time, "sleep", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), waiting:
            pytest.fail("it cannot have begun")
    assert waiting.refresh().state == "cancelled"
    monkeypatch.setenv("QTIDE_URL", service.url)
    monkeypatch.setenv("QTIDE_TOKEN", service.token("ada"))
    command = [sys.executable, "-m", "qtide", "session", "dev", "--seconds", "20", "--idle", "10"]
    words = [*command, "--", sys.executable, "-c", LOOP]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert "held dev for" in done.stdout
    assert len([task for task in client.tasks() if task.response["session"]]) == 6
