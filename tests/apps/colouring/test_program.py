"""The application as a user runs it, in virtual time; its tasks are really called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from qtide.apps.colouring.cutting.cut_plan import clustered
from qtide.apps.colouring.cutting.cut_step import tell_once
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.reading import GraphError, read_graph
from qtide.apps.colouring.steps import STEPS
from qtide.core.errors import UsageError
from qtide.runs.driver import Outcome, play
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.strategy import STRATEGIES
from tests.apps.colouring.graphs import (
    DATA,
    chromatic,
    is_proper,
    mycielski,
    queens,
    random_graph,
    write_dimacs,
)

QTIDE = [sys.executable, "-m", "qtide"]
HARD = random_graph(58, 0.5, seed=7)
"""The exact search splits it into pieces."""


def run(folder: Path, *words: object, strategy: str = "elastic", nodes: int = 3) -> Outcome:
    spec = Spec("colouring", [str(w) for w in words], strategy, f"simulated:{nodes}")
    return play(RunFolder.create(folder, "run", spec), lambda *_: None)


def result(folder: Path, *words: object, **where: Any) -> Any:
    outcome = run(folder, *words, **where)
    assert outcome.error is None
    return outcome.value


def written(folder: Path, run: str = "run") -> Any:
    return json.loads((folder / run / "colouring.json").read_text())


def file(folder: Path, graph: Graph) -> Path:
    return write_dimacs(folder / "graph.col", graph)


@pytest.mark.parametrize(
    ("graph", "colours"),
    [(mycielski(3), 4), (mycielski(4), 5), (mycielski(5), 6), (queens(5), 5)]
    + [(read_graph(DATA / f"{name}.col").graph, n) for name, n in (("huck", 11), ("jean", 10))],
    ids=["myciel3", "myciel4", "myciel5", "queen5_5", "huck", "jean"],
)
def test_the_classics(tmp_path: Path, graph: Graph, colours: int) -> None:
    found = result(tmp_path, file(tmp_path, graph))
    assert (found["lower"], found["upper"], found["proven"]) == (colours, colours, True)
    assert is_proper(graph, list(written(tmp_path)["colouring"].values()))


@pytest.mark.parametrize("sets", ["exact", "annealing", "atoms", "qaoa"])
def test_every_step_leads_to_the_chromatic_number(tmp_path: Path, sets: str) -> None:
    graph = random_graph(12, 0.5, seed=1)
    found = result(tmp_path, file(tmp_path, graph), "--sets", sets, "--no-greedy")
    assert found["proven"]
    assert found["colours"] == chromatic(graph)
    assert found["steps"] > 0
    assert is_proper(graph, list(written(tmp_path)["colouring"].values()))


@pytest.mark.parametrize("sets", ["exact", "annealing", "atoms", "qaoa", "cut"])
def test_every_step_colours_a_clustered_graph(tmp_path: Path, sets: str) -> None:
    found = result(tmp_path, "--clustered", "1,4,9", "--sets", sets, "--no-greedy")
    graph = clustered(1, 4, 9, seed=0).graph
    assert (found["colours"], found["proven"]) == (chromatic(graph), True)
    assert is_proper(graph, list(written(tmp_path)["colouring"].values()))


@pytest.mark.parametrize("strategy", ["elastic", "split"])
def test_circuits_run_on_the_device_of_the_run(
    tmp_path: Path, strategy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_once.cache_clear()
    words = ["--clustered", "1,4,8", "--no-greedy", "--no-picture", "--sets", "cut-circuits"]
    spec = Spec("colouring", words, strategy, "simulated:2", qpu="star")
    outcome = play(RunFolder.create(tmp_path, "run", spec), lambda *_: None)
    simulated = result(tmp_path / "simulated", *words[:-1], "exact")
    assert outcome.value["steps"] > 0
    assert outcome.value["upper"] == simulated["upper"]
    assert "1 cut, 2 fragments, 7 circuits per evaluation" in capsys.readouterr().err


def test_circuits_need_a_device_that_takes_them(tmp_path: Path) -> None:
    outcome = run(tmp_path, "--clustered", "1,4,8", "--no-greedy", "--sets", "cut-circuits")
    assert "--qpu gate, grid, noisy-star or star takes" in str(outcome.error)


def test_a_step_that_finds_nothing_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(graph: Graph, seed: int) -> list[frozenset[int]]:
        return []

    monkeypatch.setattr(STEPS, "load", lambda _: nothing)
    found = result(tmp_path, file(tmp_path, mycielski(4)), "--no-greedy")
    assert (found["colours"], found["proven"], found["steps"]) == (5, True, 1)


def test_every_strategy_and_number_of_nodes_finds_the_same_colouring(tmp_path: Path) -> None:
    graph = file(tmp_path, HARD)
    found = []
    for nodes, name in enumerate(STRATEGIES.names(), 1):
        value = result(tmp_path, graph, "--sets", "annealing", strategy=name, nodes=nodes)
        found.append((value, written(tmp_path)))
    assert all(one == other for one, other in pairwise(found))
    assert found[0][0]["branches"] > 500


def test_results_are_in_the_runs_folder(tmp_path: Path) -> None:
    found = result(tmp_path, "--clustered", "1,4,9", "--sets", "annealing", "--no-greedy")
    assert found["files"] == ["colouring.json", "colouring.png"]
    described = written(tmp_path)
    assert described["colours"] == len(set(described["colouring"].values()))
    assert described["proven"] and len(described["support"]) == described["lower"]
    assert imread(tmp_path / "run" / "colouring.png").shape == (840, 840, 4)


def test_a_gap_is_told(tmp_path: Path) -> None:
    found = result(tmp_path, file(tmp_path, HARD), "--effort", 100)
    assert not found["proven"]
    assert found["lower"] < found["upper"]
    assert written(tmp_path)["proven"] is False


def test_a_graph_without_edges_takes_one_colour(tmp_path: Path) -> None:
    (tmp_path / "lonely.txt").write_text("a\nb\n")
    found = result(tmp_path, tmp_path / "lonely.txt", "--no-greedy")
    assert (found["colours"], found["proven"]) == (1, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere.col",), "nowhere.col: there is no such file"),
        ((), "give either a file with a graph, or --clustered K,d,n"),
        (("a.col", "--clustered", "1,4,9"), "give either a file"),
        (("--clustered", "1,4"), "--clustered takes three numbers"),
        (("--clustered", "9,4,9"), "1 <= K < n"),
        (("--clustered", "1,4,1000000"), "1,000,000 vertices are too many"),
        (("--clustered", "1,4,9", "--sets", "magic"), "there is no way to find independent sets"),
        (("--clustered", "1,4,9", "--width", 0), "--width has to be at least 1"),
        (("--clustered", "1,4,9", "--effort", -1), "--effort has to be at least 1"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, words: tuple[object, ...], sentence: str
) -> None:
    error = run(tmp_path, *words).error
    assert isinstance(error, UsageError | GraphError)
    assert sentence in str(error)


def test_a_killed_run_resumes_to_the_same_colouring(tmp_path: Path) -> None:
    graph = file(tmp_path, HARD)
    expected = result(tmp_path, graph, "--sets", "annealing")
    colours = written(tmp_path)
    where = ["--runs", str(tmp_path / "runs")]
    words = ["run", "colouring", str(graph), "--sets", "annealing", "--cluster", "local:2"]
    driver = subprocess.Popen(
        [*QTIDE, *words, "--name", "it", "--qpu", "annealer", *where],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    journal, limit = tmp_path / "runs" / "it" / "journal", time.monotonic() + 60
    while not (journal.exists() and journal.read_text().count('"key"') >= 6):
        assert time.monotonic() < limit and driver.poll() is None
        time.sleep(0.01)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    done = subprocess.run(
        [*QTIDE, "resume", "it", "--json", *where],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert json.loads(done.stdout)["value"] == expected
    assert written(tmp_path / "runs", "it") == colours
