"""Several tasks on a device at the same time: who may, who pays what, and who is not delayed."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qiskit import QuantumCircuit

from qtide.backends.client.client import Client
from qtide.backends.devices.device import divided
from qtide.backends.devices.grid import GridDevice, grid, segments
from qtide.backends.payloads.formats.pubs import ObservableArray, Pub, Pubs
from qtide.backends.payloads.payload import Burst, PayloadRefused
from qtide.core.world.virtual import VirtualWorld
from qtide.service.task import Caller
from tests.service.serving import Serve, wait_until
from tests.service.simulation import Site

ADA, BOB, CYD = Caller("ada"), Caller("bob"), Caller("cyd")
Arrival = tuple[float, Caller, float, dict[str, Any]]


def played(setup: dict[str, Any], *tasks: Arrival) -> list[Any]:
    """The rows of tasks that arrived, each some time after the last, and ended."""
    site = Site(VirtualWorld(), {"policy": "fifo", "at_once": 3} | setup)

    async def main() -> None:
        await site.open()
        await site.world.sleep(5.0)
        for after, caller, seconds, more in tasks:
            await site.world.sleep(after)
            site.world.start(site.submit(caller, seconds, **more))
        await site.world.sleep(0.1)
        await site.settle()

    site.world.run(main(), until=1e6)
    site.check()
    return site.rows()


def test_tasks_that_may_run_at_once_and_divide_the_time() -> None:
    yes = {"beside_others": True}
    first, *rest = played(
        {},
        (0.0, ADA, 1.0, {}),
        (0.01, ADA, 8.0, yes),
        (0.01, BOB, 4.0, yes),
        (0.01, CYD, 9.0, yes),  # it would delay the others
        (0.01, CYD, 4.0, yes),
        (0.01, CYD, 1.0, {}),
    )
    assert (first["used"], first["beside"]) == (pytest.approx(1.0), 0)
    eight, four, nine, other, alone = rest
    together = (eight, four, other)
    assert [row["beside"] for row in rest] == [2, 2, 0, 2, 0]
    assert len({row["started"] for row in together}) == 1
    assert [row["used"] for row in together] == pytest.approx([4.0, 2.0, 2.0])
    assert nine["started"] == pytest.approx(eight["started"] + 8.0, abs=0.01)
    assert alone["started"] == pytest.approx(nine["started"] + 9.0, abs=0.01)


@pytest.mark.parametrize("setup", [{"at_once": 1}, {"at_once": 2}], ids=["off", "two"])
def test_no_more_run_at_once_than_the_operator_allows(setup: dict[str, Any]) -> None:
    rows = played(setup, *[(0.0, ADA, 2.0, {"beside_others": True})] * 6)
    starts = sorted(row["started"] for row in rows)
    assert len({round(each, 1) for each in starts}) == (6 if setup["at_once"] == 1 else 4)


arrivals = st.lists(
    st.tuples(
        st.sampled_from((0.0, 0.3, 2.0)),
        st.sampled_from((ADA, BOB, CYD)),
        st.sampled_from((0.05, 1.0, 4.0, 9.0)),
        st.fixed_dictionaries(
            {"beside_others": st.booleans(), "max_wait": st.sampled_from((None, None, 15.0))}
        ),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=2 * settings().max_examples // 5)
@given(arrivals)
def test_company_delays_nobody_and_breaks_no_promise(arrivals: list[Arrival]) -> None:
    """Beside the same arrivals without it. `check` compares all charges with the busy time."""
    alone = {row["name"]: row for row in played({"at_once": 1}, *arrivals)}
    rows = {row["name"]: row for row in played({}, *arrivals)}
    assert all(each["state"] == "done" for each in rows.values())
    promised = [row for row in rows.values() if row["max_wait"] is not None]
    assert all(row["started"] <= row["submitted"] + row["max_wait"] for row in promised)
    if not promised:  # else other promises can be made
        for name, row in rows.items():
            assert row["started"] <= alone[name]["started"] + 0.05
    busy, without = (sum(row["used"] for row in each.values()) for each in (rows, alone))
    if len(rows) == len(alone):
        assert busy <= without + 1e-6


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), st.floats(0.0, 1e5))
def test_a_divided_period_adds_up_exactly(parts: list[float], seconds: float) -> None:
    whole = sum(parts) or 1.0
    periods = divided(0.0, seconds, [each / whole for each in parts])
    assert periods[0][0] == 0.0
    assert periods[-1][0] + periods[-1][1] == pytest.approx(seconds, rel=1e-12)
    for (begin, length), (after, _) in pairwise(periods):
        assert begin + length == pytest.approx(after, rel=1e-12, abs=1e-12)


@given(st.integers(1, 6), st.integers(2, 6), st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_regions_are_disjoint_and_connected(rows: int, columns: int, widths: list[int]) -> None:
    device = grid(rows, columns)
    while sum(widths) > rows * columns:
        widths = widths[:-1] or [1]
    regions = segments(device._path, widths)
    assert [len(region) for region in regions] == widths
    places = [qubit for region in regions for qubit in region]
    assert len({*places}) == len(places) == sum(widths)
    for region in regions:
        assert all(device.chip.connects(pair) for pair in pairwise(region))


def chain(qubits: int, layers: int = 3) -> QuantumCircuit:
    """A circuit that does nothing if there is no noise."""
    made = QuantumCircuit(qubits, qubits)
    ladder = range(qubits - 1)
    for _ in range(layers):
        for qubit in (*ladder, *reversed(ladder)):
            made.cx(qubit, qubit + 1)
    made.measure(range(qubits), range(qubits))
    return made


def zeros(device: GridDevice, neighbours: int) -> int:
    """How often a circuit of four qubits gives what it should, beside others."""
    circuit = chain(4)
    region, *_ = device.beside([[circuit]] * (1 + neighbours))
    return int(region.solve([circuit], 4000, 1)[0].counts()["0000"])


def test_close_company_costs_fidelity_and_distant_company_does_not() -> None:
    device = grid(noise=0.3, crosstalk=1.0)
    alone = device.solve([chain(4)], 4000, 1)[0].counts()["0000"]
    assert zeros(device, 1) == pytest.approx(alone, rel=0.03)  # at the other end of the chip
    assert zeros(device, 4) < 0.95 * alone
    assert zeros(grid(noise=0.3, crosstalk=0.0), 4) == pytest.approx(alone, rel=0.03)


def test_a_circuit_is_moved_to_its_region_with_its_bits_and_branches() -> None:
    device = grid(2, 3, noise=1e-6)
    far = QuantumCircuit(6, 3)
    far.x(5)
    far.cx(5, 2)
    far.barrier()
    far.measure([5, 2, 4], [2, 0, 1])
    with far.if_test((far.clbits[2], 1)):
        far.x(4)
    far.measure(4, 1)
    triangle = QuantumCircuit(3, 3)  # it does not fit a grid without a swap
    for one, other in ((0, 1), (1, 2), (2, 0)):
        triangle.x(one)
        triangle.cx(one, other)
    triangle.measure(range(3), range(3))
    assert device.width([far]) == 3
    first, second = device.beside([[far], [triangle]])
    assert first.solve([far], 50, 1)[0].counts() == {"111": 50}
    assert second.solve([triangle], 50, 1)[0].counts() == {"100": 50}


def estimated(observable: str, mitigated: bool = False) -> Pubs:
    circuit = QuantumCircuit(20)
    circuit.x(0)
    observables = ObservableArray((), ({observable: 1.0},))
    return Pubs((Pub(circuit, np.zeros(0), 1.0, observables),), mitigated)


def test_observables_count_for_what_the_emulator_can_hold() -> None:
    """Otherwise it fails for want of memory, and the device pauses for everybody."""
    device, narrow = grid(), "I" * 17 + "ZZZ"
    for mitigated in (False, True):
        payload = estimated(narrow, mitigated)
        device.check(payload)
        assert device.solve(payload, 400, 1)[0].evs == pytest.approx(-1.0, abs=0.25)
        assert device.solve(estimated("I" * 20, mitigated), 9, 1)[0].evs == 1.0
        with pytest.raises(PayloadRefused, match="up to 10 of its qubits, not 20"):
            device.check(estimated("Z" * 20, mitigated))


DEVICES = """
[devices.grid]
kind = "grid"
profile = "superconducting"
policy = "fifo"
at_once = 3
noise = 0.01
retries = 3
"""


def test_circuits_share_a_real_service_s_device_and_survive_the_death_of_its_process(
    serving: Serve,
) -> None:
    service = serving(DEVICES)
    clients = [Client(service.url, service.token(user)) for user in ("ada", "bob", "cyd")]
    clients[0].started_device("grid")
    circuit = QuantumCircuit(2, 2)
    circuit.x(0)
    circuit.cx(0, 1)
    circuit.measure([0, 1], [0, 1])
    before = clients[0].submit(Burst(300.0), "grid")  # the others wait for it
    shots = 4000
    tasks = [each.submit(circuit, "grid", shots=shots, beside_others=True) for each in clients]
    before.cancel()
    for task in tasks:
        assert task.result(60.0)[0].counts()["11"] > 0.9 * shots
    assert [task.response["beside"] for task in tasks] == [2, 2, 2]
    used = [task.response["qpu_seconds"] for task in tasks]
    assert sum(used) >= 0.3 + shots * 0.0005
    assert max(used) - min(used) < 1e-3
    booked = clients[0].call("GET", "/v1/usage", {"by": ["user"]})
    assert booked[0]["qpu_seconds"] >= used[0]


def test_tasks_that_were_at_once_on_a_device_that_died_run_alone(serving: Serve) -> None:
    service = serving(DEVICES)
    client = Client(service.url, service.token("ada"))
    client.started_device("grid")
    before = client.submit(Burst(300.0), "grid")
    tasks = [client.submit(Burst(20.0), "grid", beside_others=True) for _ in range(3)]
    before.cancel()
    wait_until(lambda: all(task.refresh().response["started"] for task in tasks))
    for pid in service.workers():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: tasks[0].refresh().response["beside"] == 0)
    assert tasks[0].response["attempts"] == 2
    assert [task.refresh().response["beside"] for task in tasks] == [0, 2, 2]
    paid = [task.response["qpu_seconds"] for task in tasks]
    assert 0 < paid[1] == pytest.approx(paid[2], abs=1e-3)
    for task in tasks:
        task.cancel()
