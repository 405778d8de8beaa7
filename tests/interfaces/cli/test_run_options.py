"""Options of clusters, strategies and programs on one command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qtide.runs.run_options import owner, plugin_value
from tests.interfaces.cli.inside import printed, refused

PROGRAM = """
from qtide import program

@program
async def own(nodes: int = 1, memory: int = 2, numbers: list[int] = [], seed: int = 0):
    return [nodes, memory, numbers, seed]
"""
SIMULATED = ("--cluster", "simulated")


@pytest.fixture
def program(here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_{here.parent.name.replace('-', '_')}.py"
    (here / name).write_text(PROGRAM)
    monkeypatch.syspath_prepend(here)
    return name


def value(*words: object) -> Any:
    return json.loads(printed("run", *words, *SIMULATED, "--json"))["value"]


def spec(folder: Path) -> Any:
    (run,) = (folder / "qtide-runs").rglob("run.json")
    return json.loads(run.read_text())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("synthetic", "--account", "me"),
            "--account is an option of --cluster slurm, not of --cluster local",
        ),
        (("--account=me", "synthetic"), "--account is an option of --cluster slurm"),
        (
            ("synthetic", *SIMULATED, "--cold"),
            "--cold is an option of --cluster local, not of --cluster simulated",
        ),
        (
            ("synthetic", *SIMULATED, "--strategy", "static", "--favour", "time"),
            "--favour is an option of --strategy elastic, not of --strategy static",
        ),
    ],
)
def test_an_option_of_another_is_refused(
    here: Path, words: tuple[object, ...], sentence: str
) -> None:
    assert sentence in refused("run", *words)
    assert not (here / "qtide-runs").exists()


def test_compare_takes_options_of_every_strategy_it_compares(here: Path) -> None:
    words = ("compare", "synthetic", "--iterations", 1, "--quantum-s", 1, *SIMULATED)
    both = ("--strategy", "static", "--strategy", "elastic")
    printed(*words, *both, "--favour", "time", "--name", "it")
    assert "--favour is an option of" in refused(*words, "--strategy", "static", "--favour", "time")
    options = json.loads((here / "qtide-runs/it/1-jobs/elastic/job-1/run.json").read_text())
    assert options["options"] == {
        "billing": "",
        "cores": None,
        "durations": "",
        "favour": "time",
        "gpus": None,
        "idle_share": 0.1,
        "kind": [],
        "time_weight": 0.5,
    }


def test_what_was_chosen_is_kept_with_its_defaults(here: Path) -> None:
    printed("run", "synthetic", "--iterations", 1, *SIMULATED, "--favour", "nodes")
    assert spec(here)["options"] == {
        "billing": "",
        "cores": None,
        "durations": "",
        "favour": "nodes",
        "gpus": None,
        "idle_share": 0.1,
        "kind": [],
        "time_weight": 0.5,
    }


def test_a_wrong_value_of_a_plug_in_names_its_option(here: Path) -> None:
    assert "the argument cores cannot be 'many'" in refused("run", "synthetic", "--cores", "many")
    assert "--memory is a number of megabytes" in refused("run", "synthetic", "--memory", "all")
    assert "--favour is time or nodes" in refused("run", "synthetic", *SIMULATED, "--favour", "me")
    assert "did you mean --favour? The" in refused(
        "run", "synthetic", *SIMULATED, "--favor", "time"
    )


@pytest.mark.parametrize("option", ["nodes", "memory"])
def test_an_option_of_qtide_and_of_the_program_is_refused(program: str, option: str) -> None:
    said = refused("run", program, *SIMULATED, f"--{option}", 3)
    assert f"--{option} is an option of qtide and of own" in said
    assert f"`PROGRAM -- --{option} ...`" in said


def test_words_after_two_dashes_are_the_programs(program: str, here: Path) -> None:
    words = ("run", program, "--json", *SIMULATED, "--nodes", 1)
    found = json.loads(printed(*words, "--", "--nodes", 3, "--memory", 5))
    assert found["value"] == [3, 5, [], 0]
    assert spec(here)["nodes"] == 1


def test_the_seed_is_for_both(program: str) -> None:
    assert value(program, "--seed", 7) == [1, 2, [], 7]


def test_numbers_arrive_as_numbers(program: str) -> None:
    assert value(program, "--numbers", "1,2", "--numbers", 3)[2] == [1, 2, 3]
    said = refused("run", program, *SIMULATED, "--numbers", "x")
    assert "the argument numbers cannot be 'x': it should be a valid integer" in said
    assert refused("run", "synthetic", "--vqpus", "x").endswith("it has to be a valid integer\n")


def test_words_for_slurm_are_kept_as_they_are() -> None:
    (found,) = [each for each in owner("cluster", "slurm").options if each.name == "salloc"]
    words = ["--nodelist=a,b", "--exclude=c"]
    assert plugin_value(found, words) == words
    assert plugin_value(found, None) == found.default


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("synthetic --iterations", ("-3", "0", "nan", "inf")),
        ("synthetic --quantum-s", ("-3", "nan", "inf")),
        ("synthetic --time-scale", ("-3", "0", "nan", "inf")),
        ("synthetic --vqpus", ("-3", "0", "nan")),
        ("synthetic --nodes", ("-3", "0", "nan")),
        ("synthetic --seed", ("-3", "nan")),
        ("synthetic --idle-share", ("-3", "nan", "inf")),
        ("synthetic --strategy malleable --expand-timeout", ("-3", "nan", "inf")),
        ("clustering --blobs", ("-3", "nan")),
        ("clustering --threshold", ("-3", "nan", "inf")),
        ("clustering --most", ("-3", "0", "inf")),
        ("clustering --parts", ("-3", "nan")),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_before_anything_is_written(
    here: Path, option: str, wrong: tuple[str, ...]
) -> None:
    name = option.rpartition("--")[2]
    for value in wrong:
        said = refused("run", *option.split()[:-1], *SIMULATED, f"--{name}={value}")
        assert name in said
        assert said.count("\n") < 5
    assert list(here.iterdir()) == []


def test_an_unknown_key_of_a_shape_is_refused_with_the_nearest(here: Path) -> None:
    (here / "mine.toml").write_text("iteration = 2\n[[phase]]\ntasks = [1]\n")
    said = refused("run", "synthetic", "mine.toml", *SIMULATED)
    assert "mine.toml: there is no key 'iteration'; did you mean 'iterations'?" in said
    (here / "mine.toml").write_text("[[phase]]\ntask = [1]\n")
    assert "phase 1: there is no key 'task'; did you mean 'tasks'?" in refused(
        "run", "synthetic", "mine.toml", *SIMULATED
    )
