"""What a run learnt about the start of its nodes serves later runs of the same program."""

from pathlib import Path
from typing import Any

import pytest

from qtide.jobs.preparation import Preparation
from qtide.runs.folder import RunFolder
from qtide.runs.preparations import NAME, hand_on, recall, remember
from qtide.runs.spec import Spec

KNOWN = {"modules": {"numpy": 0.5}, "seconds": 2.0}
NOTHING: dict[str, Any] = {"modules": {}, "seconds": None}


def run(root: Path, program: str = "a.py", cluster: str = "local", scale: float = 1.0) -> RunFolder:
    return RunFolder.create(root, "run", Spec(program, cluster=cluster, time_scale=scale))


def learn(run: RunFolder, seconds: float = 2.0) -> None:
    remember(run, Preparation({"numpy": 0.5}, seconds))


def test_a_later_run_of_the_program_knows_it(tmp_path: Path) -> None:
    learn(run(tmp_path))
    assert recall(run(tmp_path)).as_json() == KNOWN
    assert recall(run(tmp_path, "b.py")).as_json() == NOTHING


def test_a_run_that_is_resumed_knows_its_own(tmp_path: Path) -> None:
    first = run(tmp_path)
    learn(first)
    learn(run(tmp_path), 3.0)
    assert recall(first).as_json() == KNOWN


def test_the_clock_may_be_another(tmp_path: Path) -> None:
    learn(run(tmp_path, scale=0.25))
    assert recall(run(tmp_path, scale=0.5)).as_json() == {
        "modules": {"numpy": 0.25},
        "seconds": 1.0,
    }


def test_another_cluster_starts_in_its_own_time(tmp_path: Path) -> None:
    learn(run(tmp_path, cluster="slurm"))
    assert recall(run(tmp_path)).as_json() == KNOWN | {"seconds": None}
    assert recall(run(tmp_path, cluster="slurm:gpu")).as_json() == KNOWN


def test_virtual_time_depends_on_no_other_run(tmp_path: Path) -> None:
    learn(run(tmp_path))
    assert recall(run(tmp_path, cluster="simulated")).as_json() == NOTHING
    virtual = run(tmp_path, cluster="simulated")
    learn(virtual)
    assert not (virtual.path / NAME).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"modules": 3, "seconds": null}', "{}"])
def test_a_file_that_cannot_be_read_is_passed_over(tmp_path: Path, text: str) -> None:
    learn(run(tmp_path))
    (run(tmp_path).path / NAME).write_text(text)
    assert recall(run(tmp_path)).as_json() == KNOWN


def test_all_cases_of_a_comparison_begin_with_the_same(tmp_path: Path) -> None:
    warm_up, *cases = run(tmp_path / "w"), run(tmp_path / "a"), run(tmp_path / "b")
    learn(warm_up)
    hand_on(warm_up, cases)
    assert [recall(each).as_json() for each in cases] == [KNOWN, KNOWN]
