"""Tasks for a class of devices: where they go, and how they move while they wait."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qiskit import QuantumCircuit

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.devices.gate import gate, noisy_star
from qtide.backends.payloads.payload import Burst, encode
from qtide.core.world.virtual import VirtualWorld
from qtide.service.allocations import Allocation, AllocationPeriod
from qtide.service.configuration import Configuration, Quota, Quotas
from qtide.service.intake import Submission
from qtide.service.routing import AT_ONCE
from qtide.service.service import Service
from qtide.service.store import in_memory
from qtide.service.task import Caller, ServiceTask
from qtide.service.virtual_service import SimulatedDevice, SimulatedDevices, SimulatedStore
from tests.service.serving import Serve, wait_until
from tests.service.simulation import OPERATOR

ADA, BOB, EVE = Caller("ada"), Caller("bob"), Caller("eve")


class Fleet:
    """A service with several devices of one kind, in virtual time."""

    def __init__(self, devices: int, policy: str = "fifo", seed: int = 0) -> None:
        self.world = VirtualWorld(seed)
        self.devices = {f"dev{n}": SimulatedDevice(self.world) for n in range(devices)}
        self.store = SimulatedStore(self.world, 0.0004, in_memory())
        self.policy = policy
        self.tasks: list[ServiceTask] = []

    async def open(self) -> None:
        each = {"kind": "burst", "policy": self.policy, "sessions": {"longest": 60, "idle": 9}}
        setup = dict.fromkeys(self.devices, each)
        words = {"devices": setup, "fair": {"half_life": 1e12}}
        self.service = Service(
            Configuration.model_validate(words),
            self.world,
            self.store,
            SimulatedDevices(self.devices),
            random.Random(1),
        )
        await self.service.open()
        await self.world.sleep(5.0)

    async def submit(
        self, seconds: float, device: str = "any:burst", caller: Caller = ADA, **more: Any
    ) -> ServiceTask:
        payload = encode(Burst(seconds, None))
        task = await self.service.submit(caller, Submission(device, payload, **more))
        self.tasks.append(task)
        return task

    async def settle(self) -> None:
        while not all(task.over for task in self.tasks):
            await self.world.sleep(1.0)
        await self.world.sleep(1.0)
        assert self.service.at_rest, "something is still held for a task that is over"
        await self.service.close()

    def check(self) -> None:
        """Each task ended once, on the device that its row names, and paid what it took there."""
        rows = self.store.read(lambda db: db.execute("SELECT * FROM tasks").fetchall())
        for row in rows:
            ran = [
                (name, each.seconds)
                for name, device in self.devices.items()
                for each in device.occupations
                if each.ticket.startswith(row["id"]) and each.said == "format"
            ]
            assert row["state"] == "done"
            assert [name for name, _ in ran] == [row["device"]]
            assert row["used"] == pytest.approx(sum(seconds for _, seconds in ran), abs=1e-3)


def test_a_task_goes_where_it_ends_first_and_moves_if_its_device_is_drained() -> None:
    fleet = Fleet(2)

    async def main() -> None:
        await fleet.open()
        await fleet.submit(10.0, "dev0")
        first = await fleet.submit(5.0)
        assert first.device == "dev1"
        waits = await fleet.submit(1.0)
        assert waits.device == "dev1"
        await fleet.service.operations.drain(OPERATOR, "dev1", "cooling")
        await fleet.world.sleep(1.0)
        assert (waits.device, waits.moves) == ("dev0", 1)
        sentence = fleet.service.why(ADA, waits.id)["sentences"][0]
        assert "it should end first on dev0" in sentence
        assert "it moved once" in sentence
        named = await fleet.submit(1.0, "dev1")
        await fleet.world.sleep(20.0)
        assert named.state == "queued"  # whoever names a device waits for it
        await fleet.service.operations.resume(OPERATOR, "dev1")
        await fleet.settle()

    fleet.world.run(main(), until=1e5)
    fleet.check()


def test_what_ran_on_a_device_that_died_ends_on_another_and_nothing_else_moves() -> None:
    """As the fragments of a cut circuit, of which each is a task of its own."""
    fleet = Fleet(3)

    async def main() -> None:
        await fleet.open()
        fragments = [await fleet.submit(10.0) for _ in range(3)]
        await fleet.world.sleep(2.0)
        began = [task.device for task in fragments]
        assert len({*began}) == 3
        lost = fleet.devices[began[1]]
        lost.broken = True
        assert lost.worker is not None
        lost.worker.die()
        await fleet.settle()
        assert [task.state for task in fragments] == ["done"] * 3
        assert [task.moves for task in fragments] == [0, 1, 0]
        assert fragments[1].device in (began[0], began[2])

    fleet.world.run(main(), until=1e5)


def test_a_task_that_is_tried_again_goes_to_any_device_of_its_class() -> None:
    async def body(fleet: Fleet) -> None:
        first = await fleet.submit(1.0)
        await fleet.world.sleep(5.0)
        await fleet.service.operations.drain(OPERATOR, first.device, "cooling")
        again = await fleet.service.retry(ADA, first.id)
        fleet.tasks.append(again)
        assert again.device != first.device
        await fleet.service.operations.resume(OPERATOR, first.device)

    on_two(body)


def test_those_that_cannot_move_keep_nobody_else_from_moving() -> None:
    """However many of them came first: here, tasks whose quota is used up until tomorrow."""

    async def body(fleet: Fleet) -> None:
        quotas = Quotas(user=Quota(qpu_seconds=10.0))
        fleet.service.reconfigure(fleet.service.configuration.model_copy(update={"quotas": quotas}))
        held = [await fleet.submit(9.0, caller=Caller("eve")) for _ in range(AT_ONCE + 2)]
        for name in fleet.devices:
            await fleet.submit(9.0, name, caller=Caller(name))
        waits = await fleet.submit(1.0)
        there = waits.device
        await fleet.service.operations.drain(OPERATOR, there, "cooling")
        await fleet.world.sleep(2.0)
        assert waits.device != there
        for task in held:
            await fleet.service.cancel(task.caller, task.id)
        await fleet.service.operations.resume(OPERATOR, there)

    fleet = on_two(body, done=False)
    assert fleet.tasks[-1].state == "done"


def test_a_promise_is_made_by_the_first_device_that_can() -> None:
    fleet = Fleet(2)

    async def main() -> None:
        await fleet.open()
        await fleet.submit(10.0, "dev0")
        await fleet.submit(3.0, "dev1")
        promised = await fleet.submit(1.0, max_wait=4.0)
        assert promised.device == "dev1"
        await fleet.settle()
        assert promised.started is not None and promised.latest is not None
        assert promised.started <= promised.latest

    fleet.world.run(main(), until=1e5)
    fleet.check()


def on_two(body: Any, *, done: bool = True) -> Fleet:
    """Two devices on which something was done, and everything has ended, if `done` with answers."""
    fleet = Fleet(2)

    async def main() -> None:
        await fleet.open()
        await body(fleet)
        await fleet.settle()

    fleet.world.run(main(), until=1e6)
    if done:
        fleet.check()
    return fleet


async def allocate(fleet: Fleet, device: str, seconds: float) -> None:
    day = Allocation(0, "", ADA.user, device, AllocationPeriod.DAY, seconds)
    await fleet.service.operations.add_allocation(OPERATOR, day)


def test_an_allocation_that_is_used_up_sends_a_task_to_the_next_device() -> None:
    async def body(fleet: Fleet) -> None:
        await allocate(fleet, "dev0", 4.0)
        assert (await fleet.submit(5.0)).device == "dev1"

    on_two(body)


def test_no_task_moves_to_where_an_allocation_leaves_it_nothing() -> None:
    async def body(fleet: Fleet) -> None:
        await allocate(fleet, "dev0", 11.0)
        await fleet.submit(10.0, "dev0")
        await fleet.submit(5.0, "dev1")
        waits = await fleet.submit(5.0)
        await fleet.service.operations.drain(OPERATOR, "dev1", "cooling")
        await fleet.world.sleep(2.0)
        assert (waits.device, waits.state) == ("dev1", "queued")
        await fleet.service.operations.resume(OPERATOR, "dev1")

    on_two(body)


def test_a_task_that_moves_takes_its_reservation_along() -> None:
    async def body(fleet: Fleet) -> None:
        await allocate(fleet, "dev1", 100.0)
        await fleet.submit(10.0, "dev0")
        await fleet.submit(5.0, "dev1")
        waits = await fleet.submit(50.0)
        await fleet.service.operations.drain(OPERATOR, "dev1", "cooling")
        await fleet.world.sleep(2.0)
        assert waits.device == "dev0"
        (balance,) = fleet.service.allocations.all()
        assert balance["reserved"] == 5.0, "only the task that runs there"
        await fleet.service.operations.resume(OPERATOR, "dev1")

    on_two(body)


def test_a_task_beyond_its_quota_moves_to_no_other_device() -> None:
    async def body(fleet: Fleet) -> None:
        before = fleet.service.configuration
        quotas = Quotas(user=Quota(qpu_seconds=10.0))
        fleet.service.reconfigure(before.model_copy(update={"quotas": quotas}))
        await fleet.submit(8.0)
        waits = await fleet.submit(8.0)
        kept = {name: each for name, each in before.devices.items() if name != waits.device}
        fleet.service.reconfigure(before.model_copy(update={"quotas": quotas, "devices": kept}))
        await fleet.world.sleep(100.0)
        assert fleet.service.over_quota(waits)
        assert waits.state == "queued"

    on_two(body)


def test_many_waiting_tasks_of_one_user_keep_nobody_elses_from_moving() -> None:
    async def body(fleet: Fleet) -> None:
        for name in fleet.devices:
            await fleet.submit(100.0, name)
        for _ in range(2 * AT_ONCE):
            await fleet.submit(0.1, caller=EVE)
        waits = await fleet.submit(1.0, caller=BOB)
        drained = waits.device
        await fleet.service.operations.drain(OPERATOR, drained, "cooling")
        await fleet.world.sleep(2.0)
        assert waits.device != drained
        await fleet.service.operations.resume(OPERATOR, drained)

    on_two(body)


def test_a_session_stays_where_it_was_sent_and_so_do_its_tasks() -> None:
    fleet = Fleet(2)

    async def main() -> None:
        await fleet.open()
        for name in fleet.devices:
            await fleet.submit(10.0, name)
        session = await fleet.submit(5.0, idle=1.0)
        task = await fleet.submit(0.1, session.device, session=session.id)
        await fleet.service.operations.drain(OPERATOR, session.device, "cooling")
        await fleet.world.sleep(20.0)
        assert (session.state, session.moves) == ("queued", 0)
        await fleet.service.operations.resume(OPERATOR, session.device)
        await fleet.world.sleep(0.5)
        assert (task.state, session.state) == ("done", "running")
        await fleet.settle()

    fleet.world.run(main(), until=1e5)


def test_no_task_moves_to_a_device_that_its_user_may_not_use_any_more() -> None:
    async def body(fleet: Fleet) -> None:
        await fleet.submit(10.0, "dev0")
        await fleet.submit(8.0, "dev1")
        waits = await fleet.submit(1.0)
        assert waits.device == "dev1"
        before = fleet.service.configuration
        closed = before.devices["dev0"].model_copy(update={"users": ["bob"]})
        devices = before.devices | {"dev0": closed}
        fleet.service.reconfigure(before.model_copy(update={"devices": devices}))
        await fleet.world.sleep(15.0)  # until it has been replaced
        await fleet.submit(5.0, "dev1")
        last = await fleet.submit(1.0)
        last.route = waits.route  # as if it had been sent before
        await fleet.service.operations.drain(OPERATOR, "dev1", "cooling")
        await fleet.world.sleep(10.0)
        assert (last.device, last.state) == ("dev1", "queued")
        await fleet.service.operations.resume(OPERATOR, "dev1")

    on_two(body)


durations = st.sampled_from((0.01, 1.0, 4.0, 9.0))


@settings(max_examples=2 * settings().max_examples // 5)
@given(
    st.integers(2, 4),
    st.sampled_from(("fifo", "fair", "shortest")),
    st.lists(
        st.tuples(durations, st.booleans(), st.sampled_from((0.0, 0.7, 3.0))),
        min_size=1,
        max_size=25,
    ),
)
def test_no_device_idles_while_routed_tasks_wait_for_long(
    devices: int, policy: str, arrivals: list[tuple[float, bool, float]]
) -> None:
    """Whatever arrives, a routed task ends no later than on the least loaded device, roughly."""
    fleet = Fleet(devices, policy)

    async def main() -> None:
        await fleet.open()
        for seconds, named, gap in arrivals:
            await fleet.submit(seconds, "dev0" if named else "any:burst")
            await fleet.world.sleep(gap)
        await fleet.settle()

    fleet.world.run(main(), until=1e6)
    fleet.check()
    routed = [task for task in fleet.tasks if task.route is not None]
    for task in routed:
        began = task.started or 0.0
        for name, device in fleet.devices.items():
            busy = sum(
                max(0.0, min(each.ended or 0.0, began) - max(each.began, task.submitted))
                for each in device.occupations
            )
            idle = (began - task.submitted) - busy
            assert idle <= 2.0 + 0.2 * (began - task.submitted), (name, task.moves)


def ladder(qubits: int, layers: int) -> QuantumCircuit:
    made = QuantumCircuit(qubits, qubits)
    for _ in range(layers):
        made.h(range(qubits))
        for qubit in range(qubits - 1):
            made.cx(qubit, qubit + 1)
    made.measure(range(qubits), range(qubits))
    return made


def test_the_expected_fidelity_falls_with_gates_and_noise() -> None:
    good, bad = gate(qubits=3, noisy=True, noise=0.1), gate(qubits=3, noisy=True)
    found = [each.fidelity(ladder(3, n)) for each in (good, bad) for n in (1, 10)]
    assert all(each is not None for each in found)
    assert found[0] > found[1] > found[3] and found[0] > found[2] > found[3]  # type: ignore[operator]
    assert gate(qubits=3).fidelity(ladder(3, 10)) == 1.0


def test_the_expected_fidelity_of_a_branch_is_that_of_its_qubits() -> None:
    plain, branching = QuantumCircuit(5, 1), QuantumCircuit(5, 1)
    plain.cz(2, 3)
    with branching.if_test((0, 1)):
        branching.cz(2, 3)
    found = noisy_star().fidelity([branching])
    assert found == noisy_star().fidelity([plain])
    assert found is not None and found < 1.0


NOISES = """
[devices.good]
kind = "gate"
qubits = 4
noisy = true
noise = 0.05
profile = "superconducting"

[devices.bad]
kind = "gate"
qubits = 4
noisy = true
profile = "superconducting"
"""


def test_circuits_are_routed_by_fidelity_and_queue_on_a_real_service(serving: Serve) -> None:
    service = serving(NOISES)
    client = Client(service.url, service.token("ada"))
    for name in ("good", "bad"):
        client.started_device(name)
    shallow = QuantumCircuit(4, 1)
    shallow.x(0)
    shallow.measure(0, 0)
    busy = client.submit(Burst(600.0), "good")
    wait_until(lambda: busy.refresh().response["started"])
    deep = client.submit(ladder(4, 8), "any:gate", shots=10)
    quick = client.submit(shallow, "any:gate", shots=10, min_fidelity=0.5)
    assert (deep.response["device"], quick.response["device"]) == ("good", "bad")
    assert len(quick.result(60.0)[0]) == 10
    assert "no other would do" in deep.why()[0]
    with pytest.raises(ServiceFailed, match="no device of any:gate should reach"):
        client.submit(ladder(4, 8), "any:gate", min_fidelity=0.99)
    with pytest.raises(ServiceFailed, match="bad should not reach a fidelity"):
        client.submit(ladder(4, 8), "bad", min_fidelity=0.99)
    with pytest.raises(ServiceFailed, match="no device in the class"):
        client.submit(shallow, "any:thing")
    found = client.estimate(shallow, "any:gate", shots=10)
    assert found["fidelity"] > 0.9
    busy.cancel()
    assert len(deep.result(60.0)[0]) == 10
    assert client.device("any:gate")["name"] == "any:gate"
