"""No promise is broken under competing load, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.core.world.virtual import VirtualWorld
from qtide.service.policies.policy import POLICIES
from qtide.service.quotas import QuotaMeter
from qtide.service.task import Caller
from qtide.service.virtual_service import Fate
from tests.service.rivals import Rivals
from tests.service.simulation import OPERATOR, Site


@settings(max_examples=max(60, settings().max_examples // 2))
@given(
    st.integers(0, 2**32),
    st.sampled_from(POLICIES.names()),
    st.sampled_from((None, {"every": 40.0, "lasts": 5.0})),
    st.booleans(),
    st.sampled_from((0.5, 1.0, 2.0)),
    st.sampled_from((0.0, 0.0004, 0.005, 0.05)),
    st.sampled_from((None, 0.1)),
)
def test_whoever_was_promised_a_start_starts_in_time(
    seed: int,
    policy: str,
    calibration: dict[str, float] | None,
    untimed: bool,
    load: float,
    commit_s: float,
    chunk: float | None,
) -> None:
    setup = {"policy": policy, "calibration": calibration, "chunk": chunk}
    rivals = Rivals(seed, setup, load=load, untimed=untimed, commit_s=commit_s, lasts=8.0).run()
    assert [(task.started, task.latest) for task in rivals.broken] == []


@pytest.mark.parametrize("commit_s", [0.0004, 0.005])
def test_promises_that_are_checked_at_the_same_moment_do_not_break_each_other(
    commit_s: float,
) -> None:
    site = Site(VirtualWorld(), {"policy": "fifo"}, commit_s=commit_s)

    async def main() -> None:
        await site.open()
        await site.world.sleep(5.0)
        for number in range(20):
            site.world.start(site.submit(Caller(f"user {number}"), 0.3, max_wait=1.0))
            site.world.start(site.submit(Caller(f"other {number}"), 5.0))
        await site.settle()

    site.world.run(main(), until=1e5)
    site.check()
    promised = [row for row in site.rows() if row["max_wait"] is not None]
    assert promised
    assert all(row["started"] <= row["submitted"] + row["max_wait"] for row in promised)


def test_a_promise_whose_commit_took_too_long_is_taken_back_before_anybody_hears_of_it() -> None:
    site = Site(VirtualWorld(), {}, commit_s=2.0)

    async def main() -> None:
        await site.open()
        await site.world.sleep(5.0)
        await site.submit(Caller("ada"), 0.1, max_wait=1.0)
        await site.settle()

    site.world.run(main(), until=1e5)
    site.check()
    assert site.accepted == []
    assert site.rows() == []


def test_a_promise_that_is_missed_while_it_is_written_holds_up_no_other() -> None:
    site = Site(VirtualWorld(), {"policy": "fifo"}, commit_s=0.05)

    async def main() -> None:
        await site.open()
        await site.world.sleep(5.0)
        site.world.start(site.submit(Caller("ada"), 0.001, max_wait=0.1))
        await site.world.sleep(0.008)
        site.world.start(site.submit(Caller("bob"), 0.001, max_wait=0.03))
        await site.settle()

    site.world.run(main(), until=1e5)
    site.check()
    (ada,) = site.rows()
    assert ada["started"] - ada["submitted"] < 0.06, "she waited for bob's commit"


def test_tasks_beyond_a_quota_are_looked_at_only_when_it_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quotas = {"users": {"eve": {"qpu_seconds": 5.0}}}
    site, looked = Site(VirtualWorld(), {"policy": "fifo"}, quotas=quotas), []

    async def main() -> None:
        await site.open()
        for _ in range(300):
            site.world.start(site.submit(Caller("eve"), 4.0))
        await site.world.sleep(10.0)
        blocked = QuotaMeter.blocked

        def watched(
            meter: QuotaMeter, caller: Caller, seconds: float, now: float
        ) -> tuple[str, str] | None:
            looked.append(caller.user)
            return blocked(meter, caller, seconds, now)

        monkeypatch.setattr(QuotaMeter, "blocked", watched)
        for _ in range(50):
            await site.submit(Caller("bob"), 0.01)
        await site.service.close()

    site.world.run(main(), until=1e5)
    assert looked.count("bob") == 50
    assert looked.count("eve") <= 1, "the tasks of others were looked at"


def test_a_suspect_that_kills_its_worker_while_it_is_unpacked_is_given_up() -> None:
    """Others that were handed over with it run, and are not blamed."""
    site = Site(VirtualWorld(), {"policy": "fifo", "retries": 1}, [Fate("death", 0.0)])

    async def main() -> None:
        await site.open()
        site.world.start(site.submit(Caller("eve"), 0.001))
        await site.world.sleep(600.0)
        site.fates = [Fate()]
        for _ in range(5):
            site.world.start(site.submit(Caller("bob"), 0.001))
        await site.settle()

    site.world.run(main(), until=1e5)
    site.check()
    assert [(row["state"], row["attempts"]) for row in site.rows()] == [
        ("failed", 2),
        *[("done", 1)] * 5,
    ]


def test_a_priority_beyond_the_bound_is_refused() -> None:
    site = Site(VirtualWorld(), {"policy": "priority"})

    async def main() -> None:
        await site.open()
        for caller, priority in ((Caller("ada"), 11), (Caller("ada"), 10), (OPERATOR, 100)):
            site.world.start(site.submit(caller, 0.1, priority=priority))
        await site.world.sleep(1.0)
        await site.settle()

    site.world.run(main(), until=1e5)
    site.check()
    assert sorted(row["priority"] for row in site.rows()) == [10, 100]


def test_a_burst_of_any_length_that_an_earlier_version_accepted_stops_nobody() -> None:
    site = Site(VirtualWorld(), {"policy": "fifo", "limit": 60.0})

    async def main() -> None:
        await site.open()
        await site.world.sleep(5.0)
        site.world.start(site.submit(Caller("eve"), 50.0))
        site.world.start(site.submit(Caller("eve"), 50.0))
        await site.world.sleep(1.0)
        words = "UPDATE tasks SET seconds = 1e300 WHERE state = 'queued'"
        site.store.read(lambda db: db.execute(words))
        await site.kill()
        site.world.start(site.submit(Caller("bob"), 1.0))
        await site.world.sleep(1.0)
        for task in await site.tasks():
            standing = site.service.standing(task)
            assert standing is not None and (standing.end or 0.0) < 1e4
        await site.settle()

    site.world.run(main(), until=1e5)
    site.check()
    assert site.rows()[-1]["state"] == "done"
