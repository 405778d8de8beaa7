"""What holds for every policy, on the test's own clock."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.service.device.device_queue import DeviceQueue
from qtide.service.policies.fair import AGEING
from qtide.service.policies.policy import HEAD_START, POLICIES, ShareOwner, Shares
from qtide.service.task import Caller, ServiceTask

PolicyName = st.sampled_from(POLICIES.names())


def new_queue(policy: str, **terms: float) -> DeviceQueue:
    shares = Shares(terms)
    return DeviceQueue(POLICIES.load(policy)(shares), shares)


def task(
    name: str, at: float = 0.0, seconds: float = 1.0, user: str = "ada", **more: object
) -> ServiceTask:
    account = str(more.pop("account", ""))
    return ServiceTask(
        id=name,
        caller=Caller(user, account),
        device="dev",
        format="burst",
        shots=1,
        seed=0,
        size=1,
        seconds=seconds,
        submitted=at,
        **more,  # type: ignore[arg-type]  # fields of a task
    )


@dataclass
class Device:
    """Runs the tasks of a queue one after the other, and records when."""

    queue: DeviceQueue
    now: float = 0.0

    def __post_init__(self) -> None:
        self.started: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    def run_one(self) -> str:
        chosen = self.queue.next(self.now)
        assert chosen is not None
        assert chosen.id not in self.started, "a task ran twice"
        self.queue.hand_over(chosen, self.now)
        assert len(self.queue.handed) == 1, "two tasks ran at once"
        self.started[chosen.id] = self.now
        self.queue.begin(chosen, self.now)
        self.now += chosen.seconds
        self.queue.take_back(chosen, chosen.seconds, self.now)
        self.ended[chosen.id] = self.now
        return chosen.id

    def run_until(self, moment: float) -> None:
        while self.queue.waiting and self.now < moment:
            self.run_one()
        self.now = max(self.now, moment)


@st.composite
def arrivals(draw: st.DrawFn) -> list[ServiceTask]:
    """Tasks of several users, some urgent, some with a longest wait, in order of arrival."""
    tasks, at = [], 0.0
    for number in range(draw(st.integers(1, 40))):
        at += draw(st.sampled_from((0.0, 0.1, 1.0, 10.0)))
        tasks.append(
            task(
                f"task {number}",
                at,
                draw(st.sampled_from((0.01, 1.0, 5.0))),
                draw(st.sampled_from(("ada", "bob", "cyd"))),
                account=draw(st.sampled_from(("", "physics", "maths"))),
                priority=draw(st.integers(-3, 3)),
                max_wait=draw(st.sampled_from((None, None, 0.0, 3.0, 30.0))),
            )
        )
    return tasks


@given(PolicyName, arrivals())
def test_every_task_runs_once_and_the_device_never_idles_while_one_waits(
    policy: str, tasks: list[ServiceTask]
) -> None:
    queue = new_queue(policy)
    device = Device(queue)
    accepted = []
    for each in tasks:
        device.run_until(each.submitted)
        each.submitted = device.now
        if each.max_wait is None or queue.reserve(each, device.now) is None:
            queue.add(each, device.now)
            accepted.append(each)
    device.run_until(1e9)
    assert sorted(device.started) == sorted(each.id for each in accepted)
    late = [
        each.id
        for each in accepted
        if each.latest is not None and device.started[each.id] > each.latest + 1e-6
    ]
    assert late == [], "a promise was broken"


@given(PolicyName, arrivals())
def test_the_outlook_comes_true_if_nothing_else_is_submitted(
    policy: str, tasks: list[ServiceTask]
) -> None:
    queue = new_queue(policy)
    for each in tasks:
        each.submitted, each.max_wait = 0.0, None
        queue.add(each, 0.0)
    expected = {each.id: queue.outlook(each, 0.0) for each in tasks}
    device = Device(queue)
    order = []
    while queue.waiting:
        order.append(device.run_one())
    if policy != "fair":  # with fair share, waiting since the last service counts, too
        for place, name in enumerate(order):
            assert expected[name].position == place
            assert expected[name].start == pytest.approx(device.started[name])
            assert expected[name].end == pytest.approx(device.ended[name])
    assert sorted(each.position for each in expected.values()) == list(range(len(tasks)))


@pytest.mark.parametrize("policy", POLICIES.names())
def test_a_task_is_not_starved_by_others_that_keep_coming(policy: str) -> None:
    queue = new_queue(policy)
    device = Device(queue)
    queue.add(task("patient", 0.0, 5.0, "bob", priority=-3), device.now)
    queue._shares.charge(ShareOwner("bob", "bob"), 100.0, 0.0)
    for number in range(20_000):
        name = f"newcomer {number}"
        queue.add(task(name, device.now, 0.5, f"user {number}", priority=3), device.now)
        device.run_one()
        if "patient" in device.started:
            break
    waited = device.started["patient"]
    bound = {"fair": HEAD_START / AGEING + 10.0, "priority": 361.0, "shortest": 51.0}
    assert waited <= bound.get(policy, 1.0)


def test_a_thousand_tasks_of_one_user_delay_another_by_two_bursts_at_most() -> None:
    queue = new_queue("fair")
    device = Device(queue)
    for number in range(1000):
        queue.add(task(f"ada {number}", 0.0, 1.0, "ada"), device.now)
    for number in range(20):
        device.run_until(10.0 * number + 0.5)
        submitted = device.now
        queue.add(task(f"bob {number}", submitted, 1.0, "bob"), device.now)
        while f"bob {number}" not in device.started:
            device.run_one()
        assert device.started[f"bob {number}"] - submitted <= 2.0


def test_accounts_share_by_their_weights() -> None:
    queue = new_queue("fair", physics=3.0)
    device = Device(queue)
    for number in range(400):
        queue.add(task(f"p{number}", 0.0, 1.0, "ada", account="physics"), device.now)
        queue.add(task(f"m{number}", 0.0, 1.0, "bob", account="maths"), device.now)
    for _ in range(100):
        device.run_one()
    of_physics = sum(name.startswith("p") for name in device.started)
    assert 70 <= of_physics <= 80


def test_users_of_one_account_share_what_it_gets() -> None:
    queue = new_queue("fair")
    device = Device(queue)
    for number in range(100):
        queue.add(task(f"a{number}", 0.0, 1.0, "ada", account="physics"), device.now)
        queue.add(task(f"b{number}", 0.0, 1.0, "bob", account="physics"), device.now)
        queue.add(task(f"c{number}", 0.0, 1.0, "cyd", account="maths"), device.now)
    for _ in range(80):
        device.run_one()
    counts = [sum(name.startswith(letter) for name in device.started) for letter in "abc"]
    assert counts == [20, 20, 40]


def test_an_outlook_far_back_in_the_queue_is_exact() -> None:
    queue = new_queue("fifo")
    tasks = [task(f"{number}", float(number)) for number in range(5000)]
    for each in tasks:
        queue.add(each, 0.0)
    position, start, _ = queue.outlook(tasks[-1], 0.0)
    assert position == 4999
    assert start == pytest.approx(4999.0)


def test_a_task_on_the_device_says_when_it_ends() -> None:
    queue = new_queue("fifo")
    first, second = task("first", 0.0, 4.0), task("second", 0.0, 2.0)
    queue.add(first, 0.0)
    queue.add(second, 0.0)
    queue.hand_over(first, 10.0)
    queue.begin(first, 11.0)
    assert queue.outlook(first, 12.0) == (0, 11.0, 15.0)
    assert queue.outlook(second, 12.0) == (1, 15.0, 17.0)
    assert queue.load(12.0) == pytest.approx(3.0)
    assert queue.load(20.0) == 0.0


def test_a_task_that_left_the_device_early_is_charged_for_what_it_used() -> None:
    shares = Shares()
    queue = DeviceQueue(POLICIES.load("fair")(shares), shares)
    chosen = task("one", 0.0, 100.0, "ada")
    queue.add(chosen, 0.0)
    queue.hand_over(chosen, 0.0)
    queue.take_back(chosen, 2.0, 0.0)
    assert shares.used("ada", 0.0) == pytest.approx(2.0)


@given(st.lists(st.tuples(st.floats(0.001, 100.0), st.booleans()), max_size=30))
def test_the_backlog_is_what_waits_without_a_look_at_all_of_it(
    steps: list[tuple[float, bool]],
) -> None:
    queue = new_queue("fifo")
    for number, (seconds, served) in enumerate(steps):
        queue.add(task(str(number), seconds=seconds), 0.0)
        if served:
            queue.withdraw(next(iter(queue.waiting.values())))
    waiting = sum(each.left for each in queue.waiting.values())
    assert queue.backlog(0.0) == pytest.approx(waiting, abs=1e-9)
