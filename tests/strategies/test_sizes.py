"""Tasks whose number of nodes is chosen, in virtual time."""

import json
from pathlib import Path

import pytest

from qtide import pretend, program, task
from qtide.core.forecasts import Durations


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
