"""Tasks whose number of nodes is chosen, in virtual time."""

import json
from pathlib import Path

import pytest

from qtide import classical, pretend, program, quantum, task
from qtide.backends.payloads.payload import Burst
from qtide.core.forecasts import Durations
from qtide.interfaces.python.runnable import Runnable
from qtide.runs.folder import RunFolder


def solve(serial: float, parallel: float, rank: int = 0, size: int = 1) -> tuple[int, int]:
    pretend(serial + parallel / size)
    return rank, size


@program
async def rounds(serial: float = 1.0, parallel: float = 40.0, most: int = 8) -> list[int]:
    return [len(await task(solve, serial, parallel).on(1, most)) for _ in range(6)]


@pytest.mark.parametrize(
    ("weight", "serial", "last"),
    [(1.0, 1.0, 8), (0.0, 1.0, 1), (0.5, 0.0, 8), (0.5, 40.0, 1)],
)
def test_elastic_takes_as_many_nodes_as_pay_for_themselves(
    tmp_path: Path, weight: float, serial: float, last: int
) -> None:
    made = rounds.using(cluster="simulated:8", runs=tmp_path, time_weight=weight).run(serial)
    assert made.value[-1] == last


@program
async def beside() -> None:
    """A task on three nodes beside two on one each, twice."""
    for _ in range(2):
        await classical(task(solve, 10.0, 0.0).on(3), *[task(pretend, 10.0)] * 2)
        await quantum(Burst(30.0))


@program
async def before() -> None:
    """Three tasks on one node each, then one on two nodes beside another one; twice."""
    for _ in range(2):
        await classical(*[task(pretend, 10.0)] * 3)
        await classical(task(solve, 10.0, 0.0).on(2), task(pretend, 10.0))
        await quantum(Burst(30.0))


@pytest.mark.parametrize(("made", "requested", "total"), [(beside, 10, 94.0), (before, 9, 128.0)])
def test_elastic_requests_the_nodes_of_a_wide_task_once(
    made: Runnable[[], None], requested: int, total: float, tmp_path: Path
) -> None:
    """All at once, and not those that are there already; others run meanwhile on their own."""
    (tmp_path / "site.toml").write_text("nodes = 6\n[delays]\ngrant = 2\nstart = 5\n")
    site, runs = f"simulated:{tmp_path / 'site.toml'}", tmp_path / "runs"
    run = made.run(cluster=site, runs=runs)
    spans = RunFolder(runs / run.name).intervals()
    held = [each.start for each in spans if each.what == "held" and each.lane[:5] == "node/"]
    assert sum(each < total - 30.0 for each in held) == requested, "before the last payload"
    assert run.metrics.total == pytest.approx(total)


def test_what_a_function_took_is_known_to_the_next_run() -> None:
    before = Durations(lambda: 0.0)
    for nodes in (3, 8):
        before.learn_size("solve", nodes, 40.0 / nodes)
    after = Durations(lambda: 0.0)
    after.recall(json.loads(json.dumps(before.as_json())))
    assert after.best_size("solve", range(1, 9), 1.0) == 8


def test_a_range_is_limited_by_what_the_job_may_hold(tmp_path: Path) -> None:
    made = rounds.run(strategy="static", cluster="simulated:4", nodes=3, runs=tmp_path)
    assert max(made.value) == 3


def test_one_node_gives_a_list_as_well(tmp_path: Path) -> None:
    made = rounds.run(most=1, cluster="simulated:2", runs=tmp_path)
    assert made.value == [1] * 6


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the task solve cannot run on 4 to 2 nodes"):
        task(solve, 1.0, 1.0).on(4, 2)
