"""The whole service in virtual time: what holds whatever happens, in whatever order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.backends.payloads.payload import Burst, encode
from qtide.core.world.virtual import VirtualWorld
from qtide.service.configuration import Configuration
from qtide.service.intake import Submission
from qtide.service.limits import Limits
from qtide.service.policies.policy import POLICIES
from qtide.service.records import Endings
from qtide.service.service import Service
from qtide.service.task import (
    Caller,
    Conflict,
    NotFound,
    TaskStanding,
    TaskState,
)
from qtide.service.virtual_service import Fate
from tests.service.happenings import (
    LONGEST,
    Step,
    breaks_the_device,
    callers,
    cancels,
    delays,
    drains,
    fates,
    harmful,
    harmless,
    kills_the_worker,
    loses_the_store,
    play,
    reloads,
    resumes,
    seconds,
    setups,
    submits,
)
from tests.service.simulation import OPERATOR, Site

pytestmark = pytest.mark.usefixtures("no_background_task_failed")


@settings(max_examples=3 * settings().max_examples)  # each takes some milliseconds
@given(
    st.integers(0, 2**32),
    setups,
    st.lists(fates, min_size=1, max_size=8),
    st.sampled_from((0.0, 0.0004, 0.5)),
    st.sampled_from(({}, {}, {"user": {"qpu_seconds": 60.0}})),
    st.lists(st.tuples(delays, harmless | harmless | harmful), max_size=40),
)
def test_whatever_happens_every_accepted_task_ends_once_and_is_charged_what_it_took(
    seed: int,
    setup: dict[str, Any],
    fates: list[Fate],
    commit_s: float,
    quotas: dict[str, Any],
    steps: list[tuple[float, Step]],
) -> None:
    play(Site(VirtualWorld(seed), setup, fates, commit_s, quotas, seed=seed), steps)


@given(
    st.integers(0, 2**32),
    st.fixed_dictionaries(
        {
            "policy": st.sampled_from(POLICIES.names()),
            "chunk": st.sampled_from((None, 0.3)),
            "at_once": st.sampled_from((1, 3)),
            "sessions": st.sampled_from((None, {"longest": 40.0, "idle": 8.0})),
        }
    ),
    st.lists(st.tuples(delays, harmless), min_size=1, max_size=40),
)
def test_without_faults_every_task_is_answered_in_time_and_every_waiter_is_told(
    seed: int, setup: dict[str, Any], steps: list[tuple[float, Step]]
) -> None:
    """Promises hold beside sessions, tasks that give way and tasks that run at once."""
    site = play(Site(VirtualWorld(seed), setup, seed=seed), steps)
    assert {row["state"] for row in site.rows()} <= {"done", "cancelled"}
    assert len(site.heard) == len(site.accepted) - len(
        [row for row in site.rows() if row["idle"] is not None]
    )
    assert {row["attempts"] for row in site.rows()} <= {0, 1}
    for row in site.rows():
        if row["max_wait"] is not None and row["started"] is not None:
            assert row["started"] <= row["submitted"] + row["max_wait"] + 1e-6


@given(
    st.sampled_from([name for name in POLICIES.names() if name != "fair"]),
    st.lists(st.tuples(callers, seconds, st.integers(-2, 2)), min_size=1, max_size=20),
)
def test_on_a_device_that_is_up_the_outlook_comes_true(
    policy: str, tasks: list[tuple[Caller, float, int]]
) -> None:
    site = Site(VirtualWorld(), {"policy": policy})
    expected: dict[str, float] = {}

    async def main() -> None:
        await site.open()
        await drains(site)
        for caller, length, priority in tasks:
            site.world.start(site.submit(caller, length, priority=priority))
        await site.world.sleep(5.0)
        await resumes(site)
        begin = site.world.now()
        for task in await site.tasks():
            standing = site.service.standing(task)
            assert standing is not None and standing.start is not None
            expected[task.id] = standing.start - begin
        await site.settle()
        for row in site.rows():
            # one commit per hand-over, and a start that is reported at the same moment
            late = row["started"] - begin - expected[row["id"]]
            assert -1e-6 <= late <= 0.001 * (len(tasks) + 1)

    site.world.run(main(), until=LONGEST)
    site.check()


def test_a_daily_quota_releases_tasks_the_next_day() -> None:
    quotas = {"user": {"qpu_seconds": 10.0}}
    site = Site(VirtualWorld(), {}, quotas=quotas)
    steps: list[tuple[float, Step]] = [(0.0, submits(Caller("ada"), 6.0)) for _ in range(3)]
    play(site, steps)
    days = sorted(int(row["started"] // 86_400) for row in site.rows())
    assert days == [0, 1, 2]


def test_a_cancellation_during_a_hand_over_is_not_forgotten() -> None:
    site = Site(VirtualWorld(), {}, commit_s=0.5)
    steps: list[tuple[float, Step]] = [
        (0.0, submits(Caller("ada"), 30.0)),
        (10.0, kills_the_worker),
        (0.1, cancels(0)),
    ]
    play(site, steps)
    assert [(row["state"], row["attempts"]) for row in site.rows()] == [("cancelled", 1)]


def test_only_its_owner_deletes_a_task_and_only_once_the_device_has_released_it() -> None:
    site = Site(VirtualWorld(), {"limit": 60.0, "retries": 0}, [Fate("hang")])

    async def main() -> None:
        await site.open()
        site.world.start(site.submit(Caller("ada"), 30.0))
        await site.world.sleep(10.0)
        (task,) = site.accepted
        assert task.state == "running"
        with pytest.raises(NotFound, match="belongs to another user"):
            await site.service.forget(OPERATOR, task.id)
        with pytest.raises(Conflict, match="delete it once it has ended"):
            await site.service.forget(Caller("ada"), task.id)
        assert site.row(task.id)["payload"] is not None
        await site.settle()

    site.world.run(main(), until=LONGEST)
    site.check()
    assert [task.over for task in site.accepted] == [True]


def test_answers_of_accepted_tasks_do_not_fill_the_disk() -> None:
    site = Site(VirtualWorld(), {"policy": "fifo"})

    async def main() -> None:
        await site.open()
        for user, answer in (*[("eve", "x" * 9000)] * 3, ("ada", "small")):
            payload = encode(Burst(1.0, answer))
            await site.service.submit(Caller(user), Submission("dev", payload, name=answer))
        site.service.storage.adopt(Limits(stored_bytes_per_user=15_000))
        await site.settle()

    site.world.run(main(), until=LONGEST)
    *_, last, other = site.rows()
    assert [row["state"] for row in site.rows()] == ["done", "done", "failed", "done"]
    assert last["error"].startswith("it was not run, as its user has stored")
    assert (last["used"], last["attempts"], other["used"]) == (0.0, 0, 1.0)


def test_large_work_of_one_user_is_done_one_after_the_other() -> None:
    """Payloads to run again, and sums over the store, which all users' requests wait for."""
    site = Site(VirtualWorld(), {})
    now, most = Counter[str](), Counter[str]()

    def watched(what: str, work: Any) -> Any:
        async def call(*words: Any, urgent: bool = False) -> Any:
            name = f"{what} {words[0].user}" if what == "payload" else f"{what} {urgent}"
            now[name] += 1
            most[name] = max(most[name], now[name])
            await site.world.sleep(0.1)
            try:
                return await work(*words)
            finally:
                now[name] -= 1

        return call

    async def main() -> None:
        await site.open()
        callers, service = (Caller("ada"), Caller("bob")), site.service
        one = Submission("dev", encode(Burst(1.0, "one")), name="one")
        tasks = [await service.submit(each, one) for each in callers]
        for each in tasks:
            await service.wait(each, 1e3)
        service.contents.payload = watched("payload", service.contents.payload)  # type: ignore[method-assign]
        service.store.look = watched("look", service.store.look)  # type: ignore[method-assign]
        for _ in range(5):
            for caller, task in zip(callers, tasks, strict=True):
                site.world.start(service.retry(caller, task.id))
                site.world.start(service.usage(caller, ["user"]))
                site.world.start(service.charges(caller, 0.0, 1e9))
        await site.world.sleep(60.0)
        await site.settle()

    site.world.run(main(), until=LONGEST)
    site.check()
    assert (most["payload ada"], most["payload bob"]) == (1, 1)
    assert most["look False"] <= 4, "one sum and one payload of each"


def test_what_a_device_says_is_kept_without_control_characters() -> None:
    site = Site(VirtualWorld(), {})

    async def main() -> None:
        await site.open()
        await drains(site)
        task = await site.service.submit(Caller("ada"), Submission("dev", encode(Burst(1.0))))
        endings = Endings(site.world, site.store)
        await endings.finish(task, TaskState.FAILED, error="no \0 and no \x1b[2J")
        assert site.row(task.id)["error"] == task.error == "no \ufffd and no \ufffd[2J"

    site.world.run(main(), until=1e3)


def test_a_task_ends_even_if_its_hand_over_could_not_be_written() -> None:
    steps: list[tuple[float, Step]] = [
        (0.0, submits(Caller("ada"), 5.0)),
        (0.5, submits(Caller("ada"), 5.0)),
        (3.0, loses_the_store),
        (3.0, kills_the_worker),
        (0.0, cancels(1)),
        (2.0, loses_the_store),
    ]
    site = play(Site(VirtualWorld(), {"policy": "fifo"}), steps)
    assert [row["state"] for row in site.rows()] == ["done", "cancelled"]


def test_a_service_that_stops_lets_the_device_finish_and_starts_nothing_more() -> None:
    site = Site(VirtualWorld(), {"policy": "fifo"})

    async def main() -> None:
        await site.open()
        for length in (4.0, 1.0):
            site.world.start(site.submit(Caller("ada"), length))
        await site.world.sleep(2.0)
        await site.service.close()
        rows = [(row["state"], row["attempts"]) for row in site.rows()]
        assert sorted(rows) == [("done", 1), ("queued", 0)]
        await site.restart()
        await site.settle()

    site.world.run(main(), until=LONGEST)
    site.check()


def test_a_task_of_a_removed_device_can_be_seen_and_cancelled() -> None:
    site, ada = Site(VirtualWorld(), {}), Caller("ada")

    async def main() -> None:
        await site.open()
        await drains(site)
        site.world.start(site.submit(ada, 1.0))
        await site.world.sleep(1.0)
        await site.service.close()
        others = Configuration.model_validate({"devices": {"other": {"kind": "burst"}}})
        later = Service(others, site.world, site.store.reopened(), site.device)
        await later.open()
        ((_, task),) = await later.tasks(ada)
        assert later.standing(task) == TaskStanding("down")
        assert (await later.cancel(ada, task.id)).state == "cancelled"
        await later.close()

    site.world.run(main(), until=LONGEST)
    assert [row["state"] for row in site.rows()] == ["cancelled"]


def test_a_task_that_takes_too_long_is_charged_for_the_time_it_took() -> None:
    site = play(
        Site(VirtualWorld(), {"limit": 60.0}, [Fate("hang")]), [(0.0, submits(Caller("ada"), 1.0))]
    )
    (row,) = site.rows()
    assert (row["state"], row["used"], row["attempts"]) == ("failed", 60.0, 1)


def test_a_device_goes_on_although_the_store_was_away_when_a_task_was_handed_over() -> None:
    site = Site(VirtualWorld(), {})

    async def main() -> None:
        await site.open()
        for _ in range(2):
            site.world.start(site.submit(Caller("ada"), 5.0))
        await site.world.sleep(4.0)
        site.store.broken = True
        await site.world.sleep(4.0)
        site.store.broken = False
        await site.settle()

    site.world.run(main(), until=LONGEST)
    site.check()
    first, second = sorted(row["ended"] for row in site.rows())
    assert second - first < 9.0  # its worker was not replaced


def test_licences_are_withheld_until_the_device_is_resumed() -> None:
    """Whatever is said of the reason meanwhile."""
    site, told = Site(VirtualWorld(), {"slots": 3}), list[tuple[int, int]]()

    async def withhold(drained: int, remaining: int) -> None:
        told.append((drained, remaining))

    async def main() -> None:
        await site.open()
        service, dev = site.service, site.service.devices["dev"]
        service.operations.withhold = withhold
        await service.operations.drain(OPERATOR, "dev", "cooling")
        await service.operations.drain(OPERATOR, "dev", licences=True)
        assert (dev.reason, told) == ("cooling", [(3, 0)])
        await service.operations.drain(OPERATOR, "dev", "warming")
        assert (dev.reason, told) == ("warming", [(3, 0)])
        await service.operations.resume(OPERATOR, "dev")
        assert (dev.reason, told) == (None, [(3, 0), (0, 3)])
        await service.close()

    site.world.run(main())


def test_a_task_that_is_cancelled_before_its_next_attempt_pays_for_the_last() -> None:
    site = Site(VirtualWorld(), {"retries": 2}, [Fate("hang", 1.0)])
    steps: list[tuple[float, Step]] = [
        (5.0, submits(Caller("ada"), 7.0)),
        (1.0, breaks_the_device),
        (5.0, cancels(0)),
    ]
    (row,) = play(site, steps).rows()
    assert (row["state"], row["used"]) == ("cancelled", pytest.approx(1.0, abs=1e-3))


def test_a_task_that_is_cancelled_while_its_device_is_replaced_ends_once() -> None:
    site = Site(VirtualWorld(), {}, commit_s=0.5)
    steps: list[tuple[float, Step]] = [
        (0.0, breaks_the_device),
        (0.0, submits(Caller("ada"), 7.0)),
        (5.0, cancels(0)),
        (0.0, reloads),
    ]
    (row,) = play(site, steps).rows()
    assert (row["state"], row["used"]) == ("cancelled", 0.0)
