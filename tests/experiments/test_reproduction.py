"""The reproduction: its rule, its items in virtual time, and that the docs show its data."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qtide.box.daemons import daemons
from qtide.core.errors import UsageError
from qtide.experiments.machine import described, sentence
from qtide.experiments.reproduction.clustering_tables import (
    STRATEGIES,
    ClusteringRuns,
    waits_for_nodes,
)
from qtide.experiments.reproduction.published import LEONARDO, QLUSTER, PublishedSite, play
from qtide.experiments.reproduction.reproduction import (
    DATA,
    ITEMS,
    Item,
    make,
    reproduce,
    write,
)
from qtide.experiments.reproduction.reproduction_page import markdown, number
from qtide.experiments.reproduction.result import (
    ItemResult,
    Statement,
    Value,
    Workplace,
    keep,
    kept,
    read_results,
)
from tests.interfaces.cli.inside import printed, refused
from tests.service.serving import wait_until

VIRTUAL = ("figure-1", "figures-2-3", "heterogeneous-2-3", "table-5", "quantum-candidates")


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
    why = "the published value is met; 1 of 2 statements hold; does not hold: it is better"
    assert result(value, better=False).why == why
    assert replace(result(value), missing="there is no Slurm").verdict == "not run"


def test_a_result_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    found = result(Value("a", "s", (1.0, 2.0), 1.5, 0.1, 1.4, ("runs/one",)), better=True)
    keep(tmp_path, found)
    assert kept(tmp_path, "table-9") == found
    assert kept(tmp_path, "table-8") is None


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [
        (1019.58, 0.85, "1,020 ± 1"),
        (66.12, 1.386, "66.1 ± 1.4"),
        (3.75, None, "3.75"),
        (-1e-12, 2e-12, "0"),
        (None, None, "–"),
    ],
)
def test_numbers_have_the_digits_that_mean_something(
    value: float | None, spread: float | None, text: str
) -> None:
    assert number(value, spread) == text


def test_a_page_has_no_empty_columns_and_leads_to_its_items(tmp_path: Path) -> None:
    data = write(tmp_path, [result(Value("a", "s", (2.0,)))], quick=True)
    assert "| what | unit | here |\n" in markdown(data)
    page = (tmp_path / "reproduction.html").read_text()
    assert '<a href="#table-9">A table</a>' in page and 'id="table-9"' in page


def test_a_measurement_tells_its_computer_and_whether_that_was_busy() -> None:
    made = described() | {"machine": "2 cores (some, x86_64)", "load": 1.25, "nice": 0}
    told = sentence(made, "qtide")
    assert "on a computer with 2 cores (some, x86_64), Python" in told
    assert told.endswith("Its load average was 1.2.")
    assert "busy with other programs as well (load average 9.0)" in sentence(
        made | {"load": 9.0}, "qtide"
    )
    assert "programs of lower priority as well" in sentence(
        made | {"load": 9.0, "nice": -18}, "qtide"
    )
    assert sentence(described(), "qtide")


def test_items_in_virtual_time_hold_and_are_the_same_again(tmp_path: Path) -> None:
    one, two = (
        [replace(make(Workplace(tmp_path / name), item), seconds=0.0) for item in VIRTUAL]
        for name in ("one", "two")
    )
    assert one == two
    assert [each.verdict for each in one] == ["by the twin"] * len(VIRTUAL)


def test_a_killed_measurement_takes_its_slurm_with_it(packages: None, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; sys.path.insert(0, '.')\n"
        "from qtide.experiments.reproduction.clustering_tables import cluster\n"
        "with cluster(1) as (kind, _):\n"
        "    print(kind, os.environ['SLURM_CONF'], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    kind, conf = done.stdout.split()
    assert kind == "slurm"
    folder = Path(conf).parents[1]
    wait_until(lambda: not folder.exists(), limit=60.0)
    assert not daemons(folder)


def test_an_item_that_fails_unexpectedly_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> ItemResult:
        raise ValueError("no such thing")

    monkeypatch.setitem(ITEMS, "figure-1", Item(fails))
    found = make(Workplace(tmp_path), "figure-1")
    assert found.verdict == "not run"
    assert "ValueError('no such thing'); repeat the command" in found.why


def test_numbers_of_virtual_time_are_not_in_the_column_of_what_was_measured() -> None:
    found = replace(result(Value("a", "s", (1.0, 3.0))), virtual=True)
    text = markdown({"made": described() | {"quick": True}, "items": [found.as_dict()]})
    assert "| what | unit | twin |\n" in text


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


@pytest.mark.parametrize(("site", "jobs"), [(QLUSTER, (1, 2)), (LEONARDO, (1,))])
@pytest.mark.parametrize("quantum", [120.0, 0.0])
def test_the_job_that_runs_here_is_the_twins(
    tmp_path: Path, site: PublishedSite, jobs: tuple[int, ...], quantum: float
) -> None:
    """Without any delay of a batch system, it meets the published values that depend on none."""
    runs = ClusteringRuns(site, quantum, tmp_path, jobs, 1.0)
    for strategy in STRATEGIES:
        runs.run(strategy, 1, "simulated:3")
    values = {each.what: each for each in runs.values(tmp_path)}
    assert len([each for each in values.values() if each.published]) == 6 * len(jobs)
    assert [each.what for each in values.values() if not each.is_met] == []
    assert values["static, 1 job: wall time"].ours == pytest.approx(runs.least, abs=0.1)
    assert all(
        (tmp_path / run / "ledger.jsonl").exists() for v in values.values() for run in v.runs
    )


def test_a_step_of_a_workflow_waits_for_its_nodes_as_long_as_the_site_says() -> None:
    (spans,) = play(QLUSTER, "workflow", 1, 120.0, 0.0)
    waits = waits_for_nodes(spans)
    assert waits == pytest.approx([QLUSTER.site.delays.grant + QLUSTER.site.delays.start] * 7)


def test_the_command_names_the_items(tmp_path: Path) -> None:
    assert "there is no item 'table-7'; there are: table-1" in refused(
        "reproduce", "table-7", "--runs", tmp_path
    )
    told = json.loads(printed("reproduce", "figures-2-3", "--runs", tmp_path, "--json"))
    assert [each["verdict"] for each in told["items"]] == ["by the twin"]


ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = json.loads((ROOT / "docs" / "reproduction.json").read_text())


def test_the_docs_show_the_data() -> None:
    for page, text in results().pages().items():
        assert page.read_text() == text, f"{page}: write it again with python docs/results.py"
    told = {each["name"]: each["verdict"] for each in DOCS["items"]}
    assert told == {each.name: each.verdict for each in read_results(DOCS)}
    assert set(told) <= set(ITEMS) and "table-1" in told


def test_a_page_whose_number_is_not_of_the_data_is_noticed(tmp_path: Path) -> None:
    made = results()
    page = tmp_path / "README.md"
    page.write_text(README.read_text().replace("6,115", "6,116"))
    text = made.two_jobs(DOCS)
    assert made.replaced(page, "two jobs", text) != page.read_text()
    assert made.replaced(README, "two jobs", text) == README.read_text()


def results() -> Any:
    """The script that writes the numbers of the documentation."""
    found = importlib.util.spec_from_file_location("results", ROOT / "docs" / "results.py")
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
