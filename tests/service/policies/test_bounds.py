"""Nobody waits for longer than a policy's bound, whatever others do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.service.policies.policy import HEAD_START, OVERTAKEN, POLICIES, Ordered, Shares, by_job
from qtide.service.task import Caller, ServiceTask
from tests.service.device.test_queue import Device, new_queue, task


def of_job(name: str, job: int | None, at: float, user: str = "ada") -> ServiceTask:
    made = task(name, at, user=user)
    made.caller = Caller(user, "", job)
    return made


@given(
    st.floats(0.0, 1e5),
    st.sampled_from((0.07, 1.0, 30.0)),
    st.sampled_from((0.05, 1.0, 20.0)),
)
def test_whatever_a_user_used_before_newcomers_go_first_for_a_limited_time(
    used: float, own: float, burst: float
) -> None:
    queue = new_queue("fair")
    device = Device(queue)
    history = max(1, min(200, int(used / own)))
    for number in range(history):
        queue.add(task(f"before {number}", device.now, own, "ada"), device.now)
        device.run_one()
    began = device.now
    queue.add(task("mine", began, own, "ada"), began)
    number = 0
    while "mine" not in device.started:
        queue.add(task(f"bob {number}", began, burst, "bob"), device.now)
        device.run_one()
        number += 1
    assert device.started["mine"] - began <= HEAD_START + own + burst + 1e-6


@given(st.integers(1, 6), st.sampled_from((0.1, 1.0, 5.0)))
def test_each_of_several_rivals_is_ahead_for_that_time_at_most(rivals: int, burst: float) -> None:
    queue = new_queue("fair")
    device = Device(queue)
    for number in range(30):
        queue.add(task(f"before {number}", device.now, 1.0, "ada"), device.now)
        device.run_one()
    began = device.now
    queue.add(task("mine", began, 1.0, "ada"), began)
    for number in range(300):
        user = f"rival {number % rivals}"
        queue.add(task(f"{number}", began, burst, user), began)
    while "mine" not in device.started:
        device.run_one()
    assert device.started["mine"] - began <= rivals * (HEAD_START + 1.0 + burst)


def test_a_long_task_cancelled_at_once_changes_nobodys_share() -> None:
    queue = new_queue("fair")
    device = Device(queue)
    for user, seconds in (("ada", 20.0), ("bob", 0.3)):
        queue.add(task(f"first of {user}", device.now, seconds, user), device.now)
        device.run_one()
    for number in range(5):
        long = task(f"long {number}", device.now, 600.0, "ada")
        queue.add(long, device.now)
        queue.hand_over(long, device.now)
        queue.take_back(long, 0.0, device.now)
    queue.add(task("next of ada", device.now, 1.0, "ada"), device.now)
    queue.add(task("next of bob", device.now, 1.0, "bob"), device.now)
    assert device.run_one() == "next of bob"


@pytest.mark.parametrize("policy", POLICIES.names())
@pytest.mark.parametrize("length", [0.2, 5.0, 30.0])
def test_a_stream_of_promises_starves_nobody(policy: str, length: float) -> None:
    queue = new_queue(policy)
    device = Device(queue)
    number, promised = 0, list[ServiceTask]()
    victim = task("patient", 20.0, length, "bob")
    while "patient" not in device.started:
        assert device.now < 1000.0
        if device.now >= victim.submitted and "patient" not in queue.waiting:
            victim.submitted = device.now
            queue.add(victim, device.now)
        for wait in (0.2, 0.5, 1.0, 2.0, 10.0, 60.0):
            number += 1
            each = task(f"{number}", device.now, 0.1 * (number % 9 + 1), f"eve {number % 3}")
            each.max_wait = wait
            if queue.reserve(each, device.now) is None:
                queue.add(each, device.now)
                promised.append(each)
        if queue.waiting:
            device.run_one()
        else:
            device.now += 0.1
    patience = 10.0 * length if policy == "shortest" else HEAD_START if policy == "fair" else 0.0
    assert len(promised) > 10
    assert device.started["patient"] - victim.submitted <= patience + 45.0
    device.run_until(1e9)
    late = [each.id for each in promised if device.started[each.id] > (each.latest or 0.0) + 1e-6]
    assert late == [], "a promise was broken"


def test_one_user_cannot_have_all_that_may_be_promised() -> None:
    queue = new_queue("fifo")
    for number in range(1000):
        greedy = task(f"{number}", 0.0, 1.0, "eve", max_wait=1000.0)
        if queue.reserve(greedy, 0.0) is None:
            queue.add(greedy, 0.0)
    assert 200 <= len(queue.waiting) <= 251
    modest = task("modest", 0.0, 1.0, "bob", max_wait=1000.0)
    assert queue.reserve(modest, 0.0) is None


def test_what_is_being_accepted_holds_the_device_for_it() -> None:
    queue = new_queue("fifo")
    promised = task("promised", 0.0, 1.0, "ada", max_wait=0.5)
    assert queue.reserve(promised, 0.0) is None
    queue.add(task("long", 0.0, 30.0, "bob"), 0.0)
    assert queue.next(0.0) is None, "a task was started that would break a promise"
    queue.release(promised)
    chosen = queue.next(0.0)
    assert chosen is not None
    assert chosen.id == "long"


def test_a_jobs_tasks_go_before_those_of_younger_jobs() -> None:
    queue = new_queue("jobs")
    device = Device(queue)
    for name, job, at in (("a1", 1, 0.0), ("b1", 2, 1.0), ("a2", 1, 2.0), ("none", None, 1.5)):
        queue.add(of_job(name, job, at, user=name[0]), at)
    assert [device.run_one() for _ in range(4)] == ["a1", "a2", "b1", "none"]


@given(st.lists(st.tuples(st.floats(0.0, 3e5), st.integers(1, 5)), min_size=2, max_size=30))
def test_no_task_is_overtaken_for_longer_than_a_day_by_older_jobs(
    arrivals: list[tuple[float, int]],
) -> None:
    order = Ordered(by_job(Shares()))
    tasks = [of_job(str(n), job, at) for n, (at, job) in enumerate(sorted(arrivals))]
    for each in tasks:
        order.add(each, each.submitted)
    ran = []
    while order:
        ran.append(order.first())
        order.remove(ran[-1])
    for place, one in enumerate(ran):
        for later in ran[place + 1 :]:
            assert one.submitted <= later.submitted + OVERTAKEN


def test_users_share_alike_though_one_has_many_old_jobs() -> None:
    queue = new_queue("fair")
    device = Device(queue)
    for number in range(50):
        queue.add(of_job(f"a{number}", number % 5, 0.0, "ada"), 0.0)
        queue.add(of_job(f"b{number}", 99, 1.0, "bob"), 1.0)
    ran = [device.run_one()[0] for _ in range(40)]
    assert 18 <= ran.count("a") <= 22
