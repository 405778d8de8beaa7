"""Tasks whose number of nodes changes while they run, in virtual time."""

from pathlib import Path
from typing import Any

import pytest

from qtide import PhaseError, classical, pretend, program, task, together
from qtide.backends.clusters.simulated import SimulatedCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.core.world.virtual import VirtualWorld
from qtide.interfaces.python.run import Run
from qtide.runs.driver import drive
from qtide.runs.folder import RunFolder
from qtide.strategies.site import Site
from qtide.strategies.strategy import strategy_names
from tests.bench import INSTANT
from tests.crowd import job_in
from tests.strategies.arena import Case, Faults, create, folder


def solve(serial: float, parallel: float, steps: int = 50, job: Any = None) -> int:
    total = 0
    for step in job.steps(steps):
        job.check()
        pretend(serial + parallel / job.size)
        total += step
    return total


def hold(seconds: float) -> float:
    pretend(seconds)
    return seconds


@program
async def alone(serial: float = 0.0, parallel: float = 1.0, most: int = 4) -> int:
    return await task(solve, serial, parallel).on(1, most, malleable=True)


@program
async def beside(seconds: float = 20.0) -> Any:
    async def others() -> list[float]:
        await task(hold, seconds)
        return await classical(*[task(hold, seconds)] * 3)

    return await together(task(solve, 0.0, 4.0).on(1, 4, malleable=True), others())


def sizes(run: Run[Any]) -> list[int]:
    return sizes_in(RunFolder(run.folder))


def sizes_in(run: RunFolder) -> list[int]:
    """The sizes that the task had, one after the other."""
    notes = [each for each in run.notes() if each.what in ("grew", "shrank")]
    return [1, *(int(each.figures["after"]) for each in notes)]


@pytest.mark.parametrize("strategy", strategy_names())
def test_every_strategy_gives_the_same_result_and_nodes_that_are_idle(
    strategy: str, tmp_path: Path
) -> None:
    made = alone.run(strategy=strategy, cluster="simulated:4", runs=tmp_path)
    assert made.value == sum(range(50))
    assert max(sizes(made)) == 4


@pytest.mark.parametrize("strategy", strategy_names())
def test_nodes_go_back_to_tasks_that_wait_for_them(strategy: str, tmp_path: Path) -> None:
    made = beside.run(strategy=strategy, cluster="simulated:4", nodes=4, runs=tmp_path)
    assert made.value == [sum(range(50)), [20.0, 20.0, 20.0]]
    seen = sizes(made)
    assert max(seen) > 1
    if strategy != "workflow":  # its phases have allocations of their own
        assert 1 in seen[2:]


@pytest.mark.parametrize(
    ("weight", "serial", "parallel", "most"),
    [(1.0, 0.0, 1.0, 8), (0.0, 0.0, 1.0, 1), (0.5, 0.0, 1.0, 8), (0.5, 1.0, 0.01, 2)],
)
def test_elastic_takes_as_many_nodes_as_pay_for_themselves(
    tmp_path: Path, weight: float, serial: float, parallel: float, most: int
) -> None:
    run = alone.using(cluster="simulated:8", runs=tmp_path, time_weight=weight)
    assert max(sizes(run.run(serial, parallel, 8))) == most


def test_under_elastic_nodes_go_back_while_others_wait_for_them() -> None:
    """Another user's job asks for two of four nodes, and has them before the task ends."""
    world = VirtualWorld()
    cluster = SimulatedCluster(world, 4)
    plan = [["m", 1, 4, [30.0] * 20, 4]]
    case = Case(4, 1, ["elastic"], plan, Faults(), None)

    async def ask() -> float:
        await world.sleep(100.0)
        allocation = await cluster.request(job_in(world, "another"), 2)
        got = world.now()
        await world.sleep(20.0)
        await allocation.release()
        return got

    async def main(run: RunFolder) -> float:
        place = Site(world, cluster, EmulatedQpu(world, Annealer(), INSTANT, 1))
        others = world.start(ask())
        await drive(run, place, lambda *_: None)
        return await others

    with folder() as root:
        (run,) = create(root, case)
        got = world.run(main(run))
        seen = sizes_in(run)
        end = max(each.end for each in run.intervals())
    assert got < end - 20.0
    assert seen == [1, 2, 4, 1, 4]


def obedient(steps: int, job: Any = None) -> int:
    for step in job.steps(steps):
        if step == steps // 2:
            job.minimise()
        job.check()
        pretend(1.0)
    return steps


@program
async def obeying(steps: int = 10) -> int:
    return await task(obedient, steps).on(1, 4, malleable=True)


def test_a_program_says_how_many_nodes_it_wants(tmp_path: Path) -> None:
    assert sizes(obeying.run(strategy="static", cluster="simulated:4", runs=tmp_path)) == [1, 4, 1]


def communicates(job: Any = None) -> None:
    job.comm.barrier()


def fails(job: Any = None) -> None:
    job.check()
    raise ValueError("it does not like this")


@program
async def one(name: str) -> None:
    await task({"communicates": communicates, "fails": fails}[name]).on(1, 2, malleable=True)


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("communicates", PhaseError, "job.comm cannot be used in virtual time"),
        ("fails", ValueError, "it does not like this"),
    ],
)
def test_its_errors_are_the_programs(
    name: str, error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        one.run(name, cluster="simulated:2", runs=tmp_path)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"solve needs a range: on\(2, MOST, malleable=True\)"):
        task(solve, 1.0, 1.0).on(2, malleable=True)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="solve takes whole nodes; its needs can only name a kind"):
        task(solve, 1.0, 1.0).on(1, 2, malleable=True).needs(cores=1)
    made = task(solve, 1.0, 1.0).on(1, 2, malleable=True).needs(kind="gpu")
    assert made.resources is not None
