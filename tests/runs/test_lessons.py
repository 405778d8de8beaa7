"""What a run learnt of its program serves later runs of it."""

from pathlib import Path
from typing import Any

import pytest

from qtide.core.forecasts import Forecast
from qtide.core.job import Preparation
from qtide.runs.earlier import NAME, hand_on, recall, remember
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec

KNOWN = {"modules": {"numpy": 0.5}, "seconds": 2.0}
BAD_PHASES = '{"nodes": {"modules": {}, "seconds": null}, "phases": {"tasks": [[1]], "phases": 3}}'
NOTHING: dict[str, Any] = {"modules": {}, "seconds": None}


def run(root: Path, program: str = "a.py", cluster: str = "local", scale: float = 1.0) -> RunFolder:
    return RunFolder.create(root, "run", Spec(program, cluster=cluster, time_scale=scale))


def learn(run: RunFolder, seconds: float = 2.0) -> None:
    forecast = Forecast(lambda: 0.0, lambda _: 0.0)
    forecast.tasks.recall([["scatter", 0, 7.0]])
    remember(run, Preparation({"numpy": 0.5}, seconds), forecast)


def nodes(run: RunFolder) -> dict[str, Any]:
    return recall(run).preparation.as_json()


def test_a_later_run_of_the_program_knows_it(tmp_path: Path) -> None:
    learn(run(tmp_path))
    assert nodes(run(tmp_path)) == KNOWN
    assert nodes(run(tmp_path, "b.py")) == NOTHING
    forecast = Forecast(lambda: 0.0, lambda _: 0.0)
    recall(run(tmp_path)).teach(forecast)
    assert forecast.tasks.known(("scatter", 0)) == 7.0


def test_a_run_that_is_resumed_knows_its_own(tmp_path: Path) -> None:
    first = run(tmp_path)
    learn(first)
    learn(run(tmp_path), 3.0)
    assert nodes(first) == KNOWN


def test_the_clock_may_be_another(tmp_path: Path) -> None:
    learn(run(tmp_path, scale=0.25))
    assert nodes(run(tmp_path, scale=0.5)) == {
        "modules": {"numpy": 0.25},
        "seconds": 1.0,
    }


def test_another_cluster_starts_in_its_own_time(tmp_path: Path) -> None:
    learn(run(tmp_path, cluster="slurm"))
    assert nodes(run(tmp_path)) == KNOWN | {"seconds": None}
    assert nodes(run(tmp_path, cluster="slurm:gpu")) == KNOWN


def test_virtual_time_depends_on_no_other_run(tmp_path: Path) -> None:
    learn(run(tmp_path))
    assert nodes(run(tmp_path, cluster="simulated")) == NOTHING
    virtual = run(tmp_path, cluster="simulated")
    learn(virtual)
    assert not (virtual.path / NAME).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"nodes": 3, "phases": null}', BAD_PHASES])
def test_a_file_that_cannot_be_read_is_passed_over(tmp_path: Path, text: str) -> None:
    learn(run(tmp_path))
    (run(tmp_path).path / NAME).write_text(text)
    assert nodes(run(tmp_path)) == KNOWN


def test_all_cases_of_a_comparison_begin_with_the_same(tmp_path: Path) -> None:
    warm_up, *cases = run(tmp_path / "w"), run(tmp_path / "a"), run(tmp_path / "b")
    learn(warm_up)
    hand_on(warm_up, cases)
    assert [nodes(each) for each in cases] == [KNOWN, KNOWN]
