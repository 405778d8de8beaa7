"""From sacct's output to a workload that can be simulated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qtide.backends.models.trace import read_swf
from qtide.twin.sacct import COMMAND
from tests.interfaces.cli.inside import called, printed, refused

HEADER = "JobID|JobName|User|Partition|Submit|Start|End|NNodes|Timelimit|ReqTRES"
ROWS = [
    "1|cfd|ada|cpu|2026-01-05T08:00:00|2026-01-05T08:10:00|2026-01-05T09:10:00|4|1-02:00:00|node=4",
    "1.batch|batch||cpu|2026-01-05T08:00:00|2026-01-05T08:10:00|2026-01-05T09:10:00|1||",
    "2|vqe|bob|cpu|2026-01-05T08:30:00|2026-01-05T08:30:05|2026-01-05T08:40:05|2|00:30:00|"
    "node=2,license/qpu=1",
    "3|wait|ada|cpu|2026-01-05T08:31:00|Unknown|Unknown|2|00:30:00|node=2",
    "4|run|ada|cpu|2026-01-05T08:31:00|2026-01-05T08:32:00|Unknown|2|00:30:00|node=2",
    "5|short|eve|cpu|2026-01-05T07:00:00|2026-01-05T07:00:01|2026-01-05T07:01:01|1|UNLIMITED|",
]


@pytest.fixture
def sacct(here: Path) -> Path:
    (here / "jobs.txt").write_text("\n".join([HEADER, *ROWS]) + "\n")
    return here / "jobs.txt"


def test_jobs_that_ran_become_a_trace_with_hybrid_ones_marked(sacct: Path) -> None:
    told = json.loads(printed("twin", "import", "jobs.txt", "--to", "w.swf", "--json"))
    assert (told["jobs"], told["hybrids"], told["widest"], told["nodes"]) == (3, 1, 4, 6)
    assert told["left_out"] == {"have not started": 1, "have not ended": 1}
    trace = read_swf(Path("w.swf"), strict=True).trace
    assert trace.submit.tolist() == [0, 3600, 5400]
    assert trace.run.tolist() == [60, 3600, 600]
    assert trace.limit.tolist() == [60, 26 * 3600, 1800]
    assert trace.nodes.tolist() == [1, 4, 2]
    assert trace.hybrid is not None and trace.hybrid.tolist() == [False, False, True]


def test_a_job_may_have_a_name_with_the_separator(here: Path) -> None:
    header = COMMAND.rpartition(" ")[2].replace(",", "|")
    times = "2026-01-05T08:00:00|2026-01-05T08:10:00|2026-01-05T09:10:00"
    (here / "jobs.txt").write_text(f"{header}\n1|ada|cpu|{times}|4|1-02:00:00|node=4|a|qtide-b\n")
    told = json.loads(printed("twin", "import", "jobs.txt", "--json"))
    assert (told["jobs"], told["hybrids"], told["left_out"]) == (1, 1, {})


def test_the_site_file_that_it_proposes_can_be_simulated(sacct: Path) -> None:
    told = json.loads(printed("twin", "import", "jobs.txt", "--json"))
    Path("site.toml").write_text(told["site"])
    words = ("--strategy", "elastic", "--replications", 1, "--cores", 1, "--json")
    (case,) = json.loads(printed("simulate", "site.toml", *words))["cases"]
    assert case["jobs"]["mean"] == 1


def test_the_pattern_of_hybrid_jobs_can_be_chosen(sacct: Path) -> None:
    words = ("twin", "import", "jobs.txt", "--json", "--hybrid")
    assert json.loads(printed(*words, "^cfd$"))["hybrids"] == 1
    assert json.loads(printed(*words, "cfd|vqe"))["hybrids"] == 2
    assert "no regular expression" in refused(*words, "(")
    assert "no job is marked as hybrid" in printed(*words[:3], "--hybrid", "none")


def test_what_is_not_sacct_is_refused_with_the_command_that_writes_it(here: Path) -> None:
    (here / "other.txt").write_text("a,b\n1,2\n")
    said = refused("twin", "import", "other.txt")
    assert "no column JobID" in said and "sacct -aXP" in said
    (here / "empty.txt").write_text(HEADER + "\n")
    assert "no job that ran" in refused("twin", "import", "empty.txt")
    assert "cannot be read" in refused("twin", "import", "none.txt")


def test_a_trace_that_does_not_fit_its_site_is_told(sacct: Path) -> None:
    printed("twin", "import", "jobs.txt", "--to", "w.swf")
    text = Path("w.swf").read_text()
    processors = text.replace("MaxProcs: 6", "MaxProcs: 192") + "bad row\n"
    Path("w.swf").write_text(processors)
    Path("site.toml").write_text("nodes = 3\nbackground.trace = 'w.swf'\nhybrid.marked = true\n")
    words = ("--strategy", "static", "--replications", 1, "--cores", 1)
    done = called("simulate", "site.toml", *words)
    assert done.exit_code == 0, done.output
    told = " ".join(done.stderr.split())
    assert "1 of 4 rows of w.swf are skipped" in told
    assert "counts processors (192 on 6 nodes)" in told
    assert "1 of 3 jobs of w.swf need more than the site's 3 nodes (up to 4)" in told


def test_a_trace_that_needs_more_nodes_than_there_are_is_told(here: Path) -> None:
    rows = [
        f"{n}|x|u|p|2026-01-05T08:{n:02}:00|2026-01-05T09:00:00|2026-01-05T10:00:00|2|02:00:00|qpu:1"
        for n in range(60)
    ]
    (here / "jobs.txt").write_text("\n".join([HEADER, *rows]) + "\n")
    printed("twin", "import", "jobs.txt", "--to", "w.swf")
    (here / "site.toml").write_text("nodes = 48\nbackground.trace = 'w.swf'\nhybrid.share = 0.1\n")
    words = ("--strategy", "static", "--replications", 1, "--cores", 1)
    told = " ".join(called("simulate", "site.toml", *words).stderr.split())
    assert "keep 122 nodes busy on average, but the site has 48" in told
