from pathlib import Path
from typing import Any

import dimod
import pytest

from qtide.backends.devices.annealer import Annealer
from qtide.backends.devices.atoms import Atoms
from qtide.backends.devices.profile import profile, profiles
from qtide.backends.leases.qpu import QpuFailed
from qtide.backends.payloads.payload import Burst, PayloadRefused
from qtide.core.errors import UsageError
from qtide.core.forecasts import Outlook
from tests.bench import Bench

TRIANGLE = dimod.BinaryQuadraticModel({"a": -1, "b": -2, "c": -1}, {"ab": 3, "bc": 3}, 0, "BINARY")


def two_jobs(bench: Bench) -> list[float]:
    """When two jobs end that each need the device for 10 s, and then 5 s for themselves."""

    async def one(name: str) -> float:
        lease = await bench.qpu.lease(bench.job(name))
        await lease.run(Burst(10), None, 0)
        await bench.world.sleep(5)
        lease.release()
        return bench.world.now()

    return list(bench.run(bench.world.all_of([one("a"), one("b")])))


def test_an_exclusive_qpu_serves_one_job_at_a_time(tmp_path: Path) -> None:
    assert two_jobs(Bench(tmp_path)) == [15, 30]


def test_virtual_qpus_share_the_device(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slots=2)
    assert two_jobs(bench) == [15, 25]
    busy = sorted((span.start, span.end) for span in bench.intervals() if span.what == "busy")
    assert busy == [(0, 10), (10, 20)]


def test_a_lease_tells_where_its_payload_stands(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slots=3)

    async def main() -> list[Outlook | None]:
        leases = [await bench.qpu.lease(bench.job(name)) for name in "abc"]
        before = leases[0].outlook
        tasks = [bench.world.start(lease.run(Burst(10), None, 0)) for lease in leases]
        await bench.world.sleep(4)
        seen = [before, *(lease.outlook for lease in leases)]
        await bench.world.settled(tasks)
        return seen

    assert bench.run(main()) == [None, Outlook(0, 0, 10), Outlook(1, 10, 20), Outlook(2, 20, 30)]


def test_who_gives_up_waiting_makes_way(tmp_path: Path) -> None:
    bench = Bench(tmp_path, slots=2)

    async def main() -> float:
        first = await bench.qpu.lease(bench.job("a"))
        second = await bench.qpu.lease(bench.job("b"))
        waiting = bench.world.start(bench.qpu.lease(bench.job("c")))
        works = [bench.world.start(lease.run(Burst(10), None, 0)) for lease in (first, second)]
        await bench.world.sleep(1)
        await bench.world.cancel([works[0], waiting])
        first.release()
        third = await bench.qpu.lease(bench.job("d"))
        await third.run(Burst(10), None, 0)
        return bench.world.now()

    assert bench.run(main()) == 21


def test_a_failure_of_the_device_reaches_the_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fails=lambda number: number == 1)

    async def main() -> Any:
        lease = await bench.qpu.lease(bench.job())
        with pytest.raises(QpuFailed, match="failed on its payload 1"):
            await lease.run(Burst(1, "a"), None, 0)
        return await lease.run(Burst(1, "b"), None, 0)

    assert bench.run(main()) == "b"


def test_a_lease_that_was_given_back_is_of_no_use(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def main() -> None:
        lease = await bench.qpu.lease(bench.job())
        lease.release()
        lease.release()
        await lease.run(Burst(1), None, 0)

    with pytest.raises(QpuFailed, match="already been given back"):
        bench.run(main())


def test_the_annealer_finds_the_ground_state_and_repeats_itself() -> None:
    first, second = (Annealer().solve(TRIANGLE, 50, seed=3) for _ in range(2))
    assert first.first.energy == dimod.ExactSolver().sample(TRIANGLE).first.energy
    assert first == second
    assert list(first.record.energy) == sorted(first.record.energy)


def test_the_annealer_refuses_what_it_cannot_take() -> None:
    with pytest.raises(PayloadRefused, match=r"takes a dimod.BinaryQuadraticModel, not str"):
        Annealer().check("circuit")


def test_a_model_without_variables_has_one_energy() -> None:
    model = dimod.BQM({}, {}, 1.5, "SPIN")
    Annealer().check(model)
    samples = Annealer().solve(model, 10, seed=1)
    assert set(samples.record.energy) == {1.5}
    with pytest.raises(PayloadRefused, match="a model without variables"):
        Atoms().check(model)


def test_profiles_are_as_published() -> None:
    assert profile("superconducting").seconds(TRIANGLE) < 1
    assert profile("neutral-atom").seconds(TRIANGLE) == 120
    assert {"annealer", "trapped-ion", "photonic"} < set(profiles())
    assert profile("annealer").seconds(TRIANGLE, shots=0) == profile("annealer").payload_s


def test_a_burst_says_itself_how_long_it_takes() -> None:
    assert profile("neutral-atom").seconds(Burst(3)) == 3
    assert profile("neutral-atom").seconds(Burst()) == 120


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(UsageError, match="no QPU profile 'abacus'; there are: annealer"):
        profile("abacus")
