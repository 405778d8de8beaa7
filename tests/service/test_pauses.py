"""Long tasks that give way between chunks of shots: who goes first, and what it costs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qiskit import QuantumCircuit

from qtide.backends.client.client import Client, RemoteTask
from qtide.backends.devices.device import Device
from qtide.backends.devices.gate import gate, star
from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation
from qtide.backends.payloads.formats.pubs import Pub, Pubs
from qtide.backends.payloads.payload import Burst
from qtide.core.world.virtual import VirtualWorld
from qtide.service.policies.policy import AGEING
from qtide.service.task import Caller
from tests.service.serving import Serve, wait_until
from tests.service.simulation import Site

CHUNK = 0.5
ADA, BOB = Caller("ada"), Caller("bob")


def played(setup: dict[str, Any], *tasks: tuple[float, Caller, float, dict[str, Any]]) -> Site:
    """A site on which tasks arrived, each at its time, and have ended."""
    site = Site(VirtualWorld(), {"chunk": CHUNK} | setup)

    async def main() -> None:
        await site.open()
        await site.world.sleep(5.0)
        begin = site.world.now()
        for at, caller, seconds, more in tasks:
            await site.world.sleep(begin + at - site.world.now())
            site.world.start(site.submit(caller, seconds, **more))
        await site.world.sleep(0.1)
        await site.settle()

    site.world.run(main(), until=1e6)
    site.check()
    return site


def test_a_long_task_gives_way_to_a_promised_one_and_goes_on_afterwards() -> None:
    site = played({}, (0.0, ADA, 10.0, {}), (2.2, BOB, 0.05, {"max_wait": 0.6}))
    long, short = site.rows()
    assert short["started"] - short["submitted"] <= CHUNK + 0.05
    assert (long["state"], long["attempts"]) == ("done", 1)
    assert long["share"] == pytest.approx(0.25)
    assert long["used"] == pytest.approx(10.0)  # what it measured before was not repeated
    assert long["ended"] - long["submitted"] == pytest.approx(10.05, abs=0.01)
    assert (
        len([each for each in site.device.occupations if each.ticket.startswith(long["id"])]) == 2
    )


def test_without_a_chunk_such_a_promise_is_refused() -> None:
    site = played({"chunk": None}, (0.0, ADA, 10.0, {}), (2.2, BOB, 0.05, {"max_wait": 0.6}))
    assert len(site.accepted) == 1


def test_a_long_task_does_not_give_way_if_the_promise_is_kept_anyway() -> None:
    site = played({}, (0.0, ADA, 10.0, {}), (2.0, BOB, 0.05, {"max_wait": 60.0}))
    assert len(site.device.occupations) == 2


def test_a_task_gives_way_to_whom_its_policy_puts_first_but_not_to_fair_shares() -> None:
    rivals: Any = ((0.0, ADA, 10.0, {}), (2.0, BOB, 1.0, {"priority": 5}))
    for policy, pieces in (("priority", 3), ("shortest", 3), ("fifo", 2), ("fair", 2)):
        assert len(played({"policy": policy}, *rivals).device.occupations) == pieces, policy


def test_a_promised_task_gives_way_to_nobody() -> None:
    rivals = ((0.0, ADA, 10.0, {"max_wait": 1.0}), (2.0, BOB, 0.1, {"max_wait": 1.0}))
    site = played({}, *rivals)
    assert [row["used"] for row in site.rows()] == pytest.approx([10.0])  # bob was refused


@settings(max_examples=2 * settings().max_examples // 5)
@given(st.integers(0, 1000), st.lists(st.sampled_from((0.05, 0.3, 1.0)), min_size=1, max_size=30))
def test_promised_tasks_delay_a_long_one_by_no_more_than_their_share(
    seed: int, bursts: list[float]
) -> None:
    """However many come, half of the time is left to it."""
    tasks = [
        (1.0 + number * 0.4, Caller(f"user {(seed + number) % 7}"), seconds, {"max_wait": 2.0})
        for number, seconds in enumerate(bursts)
    ]
    site = played({"policy": "fifo"}, (0.0, ADA, 20.0, {}), *tasks)
    long, *others = site.rows()
    assert all(row["started"] <= row["submitted"] + row["max_wait"] for row in others)
    overtook = sum(row["used"] for row in others if row["ended"] < long["ended"])
    assert long["ended"] - long["submitted"] == pytest.approx(20.0 + overtook, abs=0.1)
    assert overtook <= 0.5 * (long["ended"] - long["submitted"]) + 2.0


@settings(max_examples=2 * settings().max_examples // 5)
@given(
    st.sampled_from(("fifo", "priority")),
    st.lists(
        st.tuples(
            st.sampled_from((0.05, 0.2, 1.0, 5.0)),
            st.sampled_from((0.05, 1.0, 4.0, 20.0)),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=30,
    ),
)
def test_nobody_waits_for_more_than_the_policy_puts_first_and_one_chunk(
    policy: str, arrivals: list[tuple[float, float, int]]
) -> None:
    """However often a task gives way: it ends when those before it and itself have had their time.

    Of others, it waits for what is left of one chunk each time that it could have begun.
    """
    at, tasks = 0.0, []
    for number, (gap, seconds, priority) in enumerate(arrivals):
        at += gap
        tasks.append((at, Caller(f"user {number % 5}"), seconds, {"priority": priority}))
    site = played({"policy": policy}, *tasks)
    rows = sorted(site.rows(), key=lambda row: row["submitted"])
    aged = AGEING if policy == "priority" else 0.0

    def place(row: Any) -> tuple[float, float, str]:
        return row["submitted"] - aged * row["priority"], row["submitted"], row["id"]

    for mine in rows:
        first = [row for row in rows if place(row) <= place(mine)]
        pauses = 1 + len([row for row in first if row["submitted"] > mine["submitted"]])
        bound = sum(row["used"] for row in first) + pauses * (CHUNK + 0.05)
        if policy == "fifo":  # nobody gives way: who came first goes first
            bound = sum(row["used"] for row in first) + 0.01 * len(first)
        assert mine["ended"] - mine["submitted"] <= bound


def joined(device: Device, payload: object, seed: int) -> object:
    """The answer in as many pieces as there can be, each after the ones before it."""
    answer, done = None, 0
    while True:
        piece = next(device.pieces(payload, 40, seed, 1e-9, done))
        answer = device.join(answer, piece.answer) if done else piece.answer
        done = piece.done
        if piece.share == 1:
            return answer


def circuits(size: int) -> list[QuantumCircuit]:
    made = []
    for number in range(size):
        circuit = QuantumCircuit(3, 3)
        circuit.h(range(3))
        circuit.rx(0.3 * number, 0)
        circuit.measure(range(3), range(3))
        made.append(circuit)
    return made


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1, 2**40])
def test_pieces_make_up_the_same_answer_bit_for_bit(seed: int) -> None:
    device = gate(qubits=3, noisy=True)
    turn = Operation("prx", ("QB1",), {"angle": 1.0, "phase": 0.0})
    read = Operation("measure", ("QB1",), {"key": "m"})
    iqm = IqmBatch(tuple(IqmCircuit(f"{n}", (turn, read)) for n in range(4)))
    import numpy as np

    pubs = Pubs(tuple(Pub(one, np.zeros((2, 0))) for one in circuits(3)))
    for payload in (circuits(5), iqm, pubs):
        assert joined(device, payload, seed) == device.solve(payload, 40, seed)


def begun(task: RemoteTask) -> bool:
    return task.refresh().response["started"] is not None or task.state == "done"


SLOW = """
[devices.slow]
kind = "star"
profile = "superconducting"
policy = "fifo"
chunk = 0.2

[devices.own]
kind = "gate"
qubits = 16
policy = "priority"
chunk = 0.05
"""


def test_what_was_measured_before_survives_a_kill_and_the_answer_does_not_change(
    serving: Serve,
) -> None:
    service = serving(SLOW)
    client = Client(service.url, service.token("ada"))
    circuit = QuantumCircuit(3, 3)
    circuit.rx(1.0, range(3))
    circuit.cz(0, 2)
    circuit.measure(range(3), range(3))
    long = client.submit([circuit], "slow", shots=12000, seed=5)  # 6.5 s
    wait_until(lambda: long.refresh().response["started"])
    urgent = client.submit(Burst(3.0, "first"), "slow", max_wait=4.0)
    so_far: Any = None

    def gave_way() -> bool:
        nonlocal so_far
        so_far = long.partial()
        return so_far is not None

    wait_until(gave_way)
    service.kill()
    service.start()
    assert urgent.result(60.0) == "first"
    whole = long.result(60.0)
    assert (len(whole[0]), long.response["attempts"]) == (12000, 1)
    assert 0 < len(so_far[0]) < 12000
    assert whole[0].values[: len(so_far[0])] == so_far[0].values
    assert whole == star().solve([circuit], 12000, 5)


def test_a_batch_on_a_device_without_a_profile_gives_way_between_its_circuits(
    serving: Serve,
) -> None:
    served = serving(SLOW)
    client = Client(served.url, served.token("ada"))
    wide = QuantumCircuit(16, 16)
    for layer in range(12):
        wide.rx(0.1 * layer, range(16))
        wide.cx(range(15), range(1, 16))
    wide.measure(range(16), range(16))
    batch = [wide] * 15
    for _ in range(5):  # on a busy computer, the batch may end before the other task arrives
        long = client.submit(batch, "own", shots=20, seed=9)
        wait_until(partial(begun, long))
        urgent = client.submit(Burst(0.01, "first"), "own", priority=5)
        assert urgent.result(60.0) == "first"
        if long.refresh().response["share"] > 0:
            break
    assert 0 < long.response["share"] < 1
    assert long.result(60.0) == gate(qubits=16).solve(batch, 20, 9)
