"""The reproduction: its rule, its items in virtual time, and that the docs show its data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from qtide.core.errors import UsageError
from qtide.experiments.reproduction.published import TABLES
from qtide.experiments.reproduction.reproduction import DATA, ITEMS, make, reproduce, write
from qtide.experiments.reproduction.reproduction_page import markdown
from qtide.experiments.reproduction.result import (
    ItemResult,
    Statement,
    Value,
    Workplace,
    keep,
    kept,
    read_results,
)
from qtide.runs.comparison import compare
from qtide.runs.spec import Spec
from tests.interfaces.cli.inside import printed, refused

VIRTUAL = ("table-3", "table-4", "figure-1", "figures-2-3", "heterogeneous-2-3", "table-5")


def result(*values: Value, holds: bool = True, better: bool | None = None) -> ItemResult:
    advances = () if better is None else (Statement("it is better", better),)
    statements = (Statement("it holds", holds),)
    return ItemResult("table-9", "A table", "a paper", values, statements, advances)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (Value("a", "s", (109.0,), 100.0), "reproduced"),
        (Value("a", "s", (111.0,), 100.0), "not reproduced"),
        (Value("a", "s", (111.0,), 100.0, 6.0), "reproduced"),  # within two standard deviations
        (Value("a", "s", (90.0, 130.0), 100.0), "reproduced"),  # the mean counts
        (Value("a", "s", (), 100.0, twin=101.0), "by the twin"),
        (Value("a", "s", (5.0,)), "reproduced"),  # nothing was published to be missed
    ],
)
def test_a_value_is_met_within_ten_per_cent_or_two_deviations(value: Value, verdict: str) -> None:
    assert result(value).verdict == verdict


def test_statements_decide_too() -> None:
    value = Value("a", "s", (100.0,), 100.0)
    assert result(value, holds=False).verdict == "not reproduced"
    assert "does not hold: it holds" in result(value, holds=False).why
    assert result(value, better=True).verdict == "better"
    assert result(value, better=False).verdict == "reproduced"
    assert replace(result(value), missing="there is no Slurm").verdict == "not run"


def test_a_result_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    found = result(Value("a", "s", (1.0, 2.0), 1.5, 0.1, 1.4, ("runs/one",)), better=True)
    keep(tmp_path, found)
    assert kept(tmp_path, "table-9") == found
    assert kept(tmp_path, "table-8") is None


def test_items_in_virtual_time_hold_and_are_the_same_again(tmp_path: Path) -> None:
    one, two = (
        [replace(make(Workplace(tmp_path / name), item), seconds=0.0) for item in VIRTUAL]
        for name in ("one", "two")
    )
    assert one == two
    assert [each.verdict for each in one] == ["by the twin"] * len(VIRTUAL)
    published = sum(value.published is not None for each in one for value in each.values)
    assert published == 2 * len(TABLES["leonardo"])


def test_what_is_done_is_kept_and_what_cannot_run_says_so(tmp_path: Path) -> None:
    keep(tmp_path / "items", replace(result(), name="table-3", title="as it was kept"))
    found = {each.name: each for each in reproduce(tmp_path, ["table-3", "figure-9"])}
    assert found["table-3"].title == "as it was kept"
    assert "it needs the runs of table-1" in found["figure-9"].why
    with pytest.raises(UsageError, match="has a quick reproduction"):
        reproduce(tmp_path, ["table-3"], quick=False)
    data = write(tmp_path, list(found.values()), quick=True)
    assert json.loads((tmp_path / DATA).read_text()) == data
    page = (tmp_path / "reproduction.html").read_text()
    assert "as it was kept" in page and "At a glance" in page


def test_the_published_workflow_holds_three_nodes_to_score_and_jobs_come_apart(
    tmp_path: Path,
) -> None:
    words = ["published-workflow", "--quantum-s", "0"]
    spec = Spec("synthetic", words, cluster="simulated:3", nodes=3)
    one, two = compare(tmp_path, spec, ["workflow"], [1, 2], lambda *_: None, apart=5.0)
    assert one.panel().metrics.nodes_held == pytest.approx(4 * 3 * (77.3 + 52))
    begun = [min(span.start for span in run.intervals()) for run in two.runs]
    assert begun == [0.0, 5.0]
    assert two.panel().metrics.total == pytest.approx(2 * 4 * (77.3 + 52), rel=0.01)


def test_the_command_names_the_items(tmp_path: Path) -> None:
    assert "there is no item 'table-7'; there are: table-1" in refused(
        "reproduce", "table-7", "--runs", tmp_path
    )
    told = json.loads(printed("reproduce", "table-4", "--runs", tmp_path, "--json"))
    assert [each["verdict"] for each in told["items"]] == ["by the twin"]


DOCS = json.loads((Path(__file__).parents[2] / "docs" / "reproduction.json").read_text())


def test_the_docs_show_the_data() -> None:
    page = Path(__file__).parents[2] / "docs" / "reproduction.md"
    assert page.read_text() == markdown(DOCS)
    told = {each["name"]: each["verdict"] for each in DOCS["items"]}
    assert told == {each.name: each.verdict for each in read_results(DOCS)}
    assert set(told) <= set(ITEMS) and "table-1" in told
