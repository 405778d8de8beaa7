"""The commands of the twin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interfaces.cli.inside import called, printed, refused

SITE = """
nodes = 8
scheduler = "easy"
background.generate = { jobs = 50, days = 0.2, largest = 8, mean_run = 600 }
hybrid = { jobs = 4, days = 0.1 }
"""


def test_a_site_is_simulated_with_a_table_and_a_page(here: Path) -> None:
    (here / "site.toml").write_text(SITE)
    words = ("simulate", "site.toml", "--strategy", "static", "--replications", 2, "--cores", 1)
    found = json.loads(printed(*words, "--json"))
    assert [case["strategy"] for case in found["cases"]] == ["static"]
    assert found["cases"][0]["jobs"]["mean"] == 4
    assert (here / "simulation.html").is_file()
    assert "turnaround" in printed(*words)


def test_a_site_without_hybrid_jobs_and_an_unknown_strategy_are_refused(here: Path) -> None:
    (here / "site.toml").write_text("nodes = 3\nhybrid.jobs = 0\n")
    assert "no hybrid jobs" in refused("simulate", "site.toml")
    assert "statik" in refused("simulate", "site.toml", "--strategy", "statik")


def test_a_site_file_is_a_simulated_cluster(here: Path) -> None:
    (here / "site.toml").write_text("nodes = 3\ndelays.grant = 10\nqpu.offload = 5\n")
    words = ("synthetic", "published", "--iterations", 1, "--cluster", "simulated:site.toml")
    found = json.loads(called("compare", *words, "--strategy", "workflow", "--json").stdout)
    assert found["cases"][0]["total"] == 10 + 77.3 + 5 + 120 + 10 + 52


@pytest.mark.parametrize(("terms", "queues"), [("", False), ("qpu.licences = 1\n", True)])
def test_jobs_of_a_comparison_share_the_service_of_a_site_file(
    here: Path, terms: str, queues: bool
) -> None:
    (here / "site.toml").write_text(f"nodes = 6\n{terms}[service]\npolicy = 'fifo'\ncommit = 0.0\n")
    words = ("synthetic", "published", "--iterations", 1, "--cluster", "simulated:site.toml")
    both = ("--nodes", 3, "--jobs", 2, "--strategy", "workflow", "--qpu", "annealer")
    found = json.loads(called("compare", *words, *both, "--json").stdout)
    assert found["cases"][0]["total"] == 77.3 + 120 + 120 + 52
    events = "".join(file.read_text() for file in here.rglob("ledger*"))
    assert '"qpu/qpu-1"' in events
    assert ('"a lease"' in events) == queues


def test_a_partition_of_a_site_file_is_a_simulated_cluster(here: Path) -> None:
    parts = "[[partitions]]\nname = 'cpu'\nnodes = 2\n[[partitions]]\nname = 'gpu'\nnodes = 4\n"
    (here / "site.toml").write_text(parts)
    words = ("run", "synthetic", "published", "--iterations", 1, "--nodes", 4)
    called(*words, "--cluster", "simulated:site.toml:gpu")
    assert "the cluster has 2" in refused(*words, "--cluster", "simulated:site.toml")
    assert "no partition 'tpu'" in refused(*words, "--cluster", "simulated:site.toml:tpu")


def test_auto_says_what_it_chose_and_why(here: Path) -> None:
    words = ("run", "synthetic", "published", "--iterations", 2, "--cluster", "simulated")
    assert "no earlier run" in called(*words, "--strategy", "auto").stderr
    said = called(*words, "--strategy", "auto").stderr
    assert "strategy elastic: judged by the run qtide-runs/synthetic-" in said
    assert '"strategy": "elastic"' in (max(here.glob("qtide-runs/*/run.json"))).read_text()


def test_the_three_plans_answer(here: Path) -> None:
    advice = json.loads(printed("plan", "strategy", "--rounds", 1, "--json"))
    assert advice["strategy"] == "elastic" and len(advice["flips"]) == len(advice["waits"])
    (here / "site.toml").write_text("hybrid = { rounds = 2, quantum = 10, alone = 0 }\n")
    words = ("--longest", 1, "--site", "site.toml")
    assert "offer 1: payloads then wait for 0.1 s" in printed("plan", "vqpus", *words)
    assert "no policy 'lucky'" in refused("plan", "vqpus", "--policy", "lucky")
    assert "full in years" in printed("plan", "growth")
    assert printed("plan", "growth").rstrip().splitlines()[-1].startswith("do not buy yet")
    assert "--tasks" in refused("plan", "strategy", "--tasks", "x")


def test_a_plan_may_look_at_some_strategies_and_draw_its_map(here: Path) -> None:
    words = ("--rounds", 1, "--strategy", "static", "--strategy", "workflow")
    advice = json.loads(printed("plan", "strategy", *words, "--picture", "map.png", "--json"))
    assert [each["strategy"] for each in advice["expected"]] == ["static", "workflow"]
    assert (here / "map.png").read_bytes().startswith(b"\x89PNG")
    assert [len(row) for row in advice["margins"]] == [len(row) for row in advice["flips"]]
    assert all(margin >= 0 for row in advice["margins"] for margin in row)
    assert any(margin > 0.01 for row in advice["margins"] for margin in row)
    table = printed("plan", "strategy", *words)
    assert f"{advice['flips'][0][0]} {advice['margins'][0][0]:.0%}" in " ".join(table.split())
    assert "statik" in refused("plan", "strategy", "--strategy", "statik")


def test_a_site_is_calibrated_from_runs(here: Path) -> None:
    printed("run", "synthetic", "published", "--cluster", "simulated", "--name", "one")
    found = json.loads(printed("twin", "calibrate", "one", "--site", "site.toml", "--json"))
    assert found["tasks"]["work"]["samples"] == 16
    assert (here / "site.toml").read_text().startswith("nodes = 3")


def test_a_simulation_tells_its_progress_from_the_start(here: Path) -> None:
    (here / "site.toml").write_text("hybrid = { jobs = 1, rounds = 1 }\n")
    words = ("--strategy", "static", "--replications", "2", "--cores", "1")
    done = called("simulate", "site.toml", *words)
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines()[0] == "simulating 2 replications"
