"""Runs are named by any unique prefix; a broken one does not hide the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qtide.core.errors import UsageError
from qtide.runs.folder import RunFolder, unique
from qtide.runs.spec import Spec
from tests.interfaces.cli.inside import printed, refused


def create(here: Path, *names: str) -> None:
    for name in names:
        path = here / "qtide-runs" / name
        RunFolder.create(path.parent, path.name, Spec("synthetic"))


def test_a_unique_prefix_is_enough(here: Path) -> None:
    create(here, "synthetic-1", "synthetic-2", "other")
    assert json.loads(printed("show", "o", "--json"))["run"] == "other"
    assert json.loads(printed("show", "synthetic-2", "--json"))["run"] == "synthetic-2"
    said = refused("show", "syn")
    assert "'syn' matches 2 runs in qtide-runs: synthetic-1, synthetic-2" in said
    assert "there is no run 'x' in qtide-runs" in refused("show", "x")


def test_a_whole_name_is_not_taken_for_a_prefix(here: Path) -> None:
    create(here, "night", "night-2")
    assert json.loads(printed("show", "night", "--json"))["run"] == "night"


def test_a_comparison_is_reported_by_its_prefix(here: Path) -> None:
    words = ("compare", "synthetic", "--iterations", 1, "--quantum-s", 1, "--cluster", "simulated")
    printed(*words, "--strategy", "static", "--strategy", "workflow", "--name", "both")
    made = json.loads(printed("report", "bo", "--json"))
    assert Path(made["page"]) == Path("qtide-runs/both/report.html")
    page = json.loads(printed("report", "both/1-jobs/st", "--json"))["page"]
    assert Path(page).parent == Path("qtide-runs/both/1-jobs/static/job-1")


def test_many_candidates_are_not_all_listed() -> None:
    with pytest.raises(
        UsageError, match=r"matches 9 runs here: a0, a1, a2, a3, a4 and 4 more; give"
    ):
        unique("a", [f"a{n}" for n in range(9)], "run", "here")


def test_a_broken_folder_does_not_hide_others(here: Path) -> None:
    create(here, "good", "bad", "worse", "odd")
    (here / "qtide-runs/odd/run.json").write_text('{"program": ["synthetic"]}')
    (here / "qtide-runs/bad/run.json").write_text("{")
    (here / "qtide-runs/worse/end.json").write_text('{"val')
    rows = {row["run"]: row["state"] for row in json.loads(printed("list", "--json"))}
    assert rows == {"good": "new", "bad": "damaged", "worse": "damaged", "odd": "damaged"}
    text = printed("list")
    assert "bad is damaged: qtide-runs/bad/run.json cannot be read" in text
    assert "worse is damaged: qtide-runs/worse/end.json cannot be read" in text
    assert "'program' cannot be ['synthetic']" in text
    assert json.loads(printed("show", "last", "--json"))["run"] == "good"
    assert "run.json cannot be read" in refused("show", "bad", code=1)


def test_runs_of_the_version_before_still_open(here: Path) -> None:
    create(here, "old")
    flat = {"program": "synthetic", "cluster": "slurm", "account": "me", "favour": 0.25}
    (here / "qtide-runs/old/run.json").write_text(json.dumps(flat))
    spec = RunFolder(here / "qtide-runs/old").spec
    assert spec.options == {"account": "me", "favour": 0.25}


def test_two_runs_of_one_name_get_two_folders(here: Path) -> None:
    create(here, "it", "it", "it")
    assert sorted(RunFolder.names(here / "qtide-runs")) == ["it", "it-2", "it-3"]


def test_a_run_is_shown_in_words(here: Path) -> None:
    printed("run", "synthetic", "--iterations", 1, "--cluster", "simulated", "--name", "it")
    shown, _, decided = printed("show", "it").partition("what was decided")
    assert "gave back n1" in decided
    lines = dict(line.split(": ", 1) for line in shown.splitlines())
    assert lines["state"] == "done"
    assert lines["driver"].startswith("process ")
    assert json.loads(lines["result"])["iterations"] == 1
    assert "now" not in lines and "waits for" not in lines


def test_the_last_report_is_that_of_the_comparison(here: Path) -> None:
    create(here, "before")
    compare(here, "both")
    page = json.loads(printed("report", "last", "--json"))["page"]
    assert Path(page) == Path("qtide-runs/both/report.html")


def test_a_comparison_is_one_line_unless_all_are_wanted(here: Path) -> None:
    name = "a-comparison-with-a-name-that-is-much-too-long-for-eighty-columns"
    compare(here, name)
    printed("run", "synthetic", "--iterations", 1, "--cluster", "simulated")
    (one, single) = json.loads(printed("list", "--json"))
    assert (one["run"], one["jobs"], one["state"]) == (name, 2, "done")
    assert (one["strategy"], one["program"], single["jobs"]) == ("2 compared", "synthetic", 1)
    assert len(json.loads(printed("list", "--all", "--json"))) == 3
    head, rule, *lines = printed("list").splitlines()
    assert len(lines) == 2
    assert all(len(line) <= 80 for line in (head, rule, *lines))
    assert "…" in lines[0] and "columns" in lines[0]  # both ends of the name are there
    assert lines[1].split()[0] == single["run"]


def compare(here: Path, name: str) -> None:
    words = ("compare", "synthetic", "--iterations", 1, "--quantum-s", 1, "--cluster", "simulated")
    strategies = ("--strategy", "static", "--strategy", "workflow")
    printed(*words, *strategies, "--name", name)
