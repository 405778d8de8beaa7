"""The plans of the command line agree with each other, with simulations and with themselves."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.interfaces.cli.inside import called, printed, refused

CROWDED = """
nodes = 8
scheduler = "easy"
background.generate = { jobs = 60, days = 0.1, largest = 8, mean_run = 600 }
"""


ROOT = Path(__file__).parents[2]


def test_planners_need_no_extra() -> None:
    """What only extras install may be missing: a plain installation plans, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {"fastapi", "httptools", "starlette", "uvloop", "numba", "scipy", "qiskit", "mpi4py"}
    names = {word.split(">")[0].split("[")[0] for word in project["dependencies"]}
    assert not known & names and {"prometheus-client", "numpy"} <= names
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({sorted(known)}))\n"  # None: importing them fails
        "from qtide.interfaces.cli.main import main\n"
        "main(['plan', 'growth', '--payloads', '100', '--quantum', '30', '--json'])\n"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.parametrize("site", ["nodes = 3\nscheduler = 'easy'\n", CROWDED])
def test_compare_plan_and_auto_work_on_a_site_with_a_queue(here: Path, site: str) -> None:
    (here / "site.toml").write_text(site)
    words = ("synthetic", "published", "--iterations", 1, "--cluster", "simulated:site.toml")
    found = json.loads(called("compare", *words, "--strategy", "workflow", "--json").stdout)
    assert found["cases"][0]["total"] >= 77.3 + 120 + 52
    done = called("run", *words, "--strategy", "auto")
    assert done.exit_code == 0 and "strategy " in done.stderr, done.output
    names = ("--strategy", "static", "--strategy", "elastic")
    advice = json.loads(printed("plan", "strategy", "--site", "site.toml", *names, "--json"))
    assert advice["expected"][0]["wall"]["expected"] > 997


def test_vqpus_for_a_site_are_what_its_simulation_says(here: Path) -> None:
    site = "nodes = 12\nhybrid = { jobs = 20, days = 1.0, quantum = 60 }\n[service]\n"
    (here / "site.toml").write_text(site)
    told = json.loads(printed("plan", "vqpus", "--site", "site.toml", "--json"))
    words = ("--strategy", "elastic", "--vqpus", told["offer"], "--cores", 1, "--json")
    (case,) = json.loads(printed("simulate", "site.toml", *words))["cases"]
    (row,) = [each for each in told["sharing"] if each["vqpus"] == told["offer"]]
    assert row["occupancy"]["mean"] == pytest.approx(case["qpu_occupancy"]["mean"])
    assert row["wait"]["mean"] == pytest.approx(case["queue_qpu"]["mean"] / 4)
    assert told["offer"] == 1 and row["occupancy"]["mean"] < 0.2  # few jobs come: one is enough


def test_no_more_vqpus_are_offered_than_fill_the_qpu() -> None:
    words = ("--quantum", 10, "--classical", 90, "--longest", 30, "--fixed")
    told = json.loads(printed("plan", "vqpus", *words, "--json"))
    assert told["offer"] == 10
    (row,) = [each for each in told["sharing"] if each["jobs"] == 10]
    assert row["occupancy"]["mean"] > 0.99 and row["wait"]["mean"] < 1


def test_a_percentile_of_the_wait_may_be_the_limit() -> None:
    words = ("plan", "vqpus", "--quantum", 10, "--classical", 20)
    mean = json.loads(printed(*words, "--longest", 8, "--json"))
    tail = json.loads(printed(*words, "--wait-p95", 8, "--json"))
    assert tail["offer"] < mean["offer"]
    (row,) = [each for each in tail["sharing"] if each["jobs"] == tail["offer"]]
    assert row["usual"]["mean"] <= 8


def test_a_plan_knows_needs_and_kinds_and_what_is_charged(here: Path) -> None:
    """Eight one-core tasks fill one CPU node for 10 s, and the single one a GPU node for 20 s."""
    kinds = "kinds = ['cpu:4,cores=8', 'gpu:2,cores=8,gpus=4']"
    (here / "site.toml").write_text(f"{kinds}\nbilling = {{ node = 0, core = 1, gpu = 10 }}")
    tasks = ("--tasks", ",".join(["10"] * 8), "--alone", 20, "--quantum", 30, "--rounds", 1)
    words = ("plan", "strategy", "--site", "site.toml", "--strategy", "workflow", *tasks)
    needs = ("--needs", "cores=1", "--alone-needs", "gpus=1,kind=gpu")
    assert "charged node-s" in printed(*words, *needs)
    (found,) = json.loads(printed(*words, *needs, "--json"))["expected"]
    assert found["node_seconds"]["expected"] == pytest.approx(10 + 20 * (8 + 4 * 10) / 8)
    assert "--needs: there is no kind 'tpu'; there are: cpu, gpu" in refused(
        *words, "--needs", "kind=tpu"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("strategy", "--tasks", "nan"), "--tasks cannot be 'nan'"),
        (("strategy", "--tasks", "5,-1"), "--tasks cannot be '5,-1'"),
        (("strategy", "--tasks", "inf"), "--tasks cannot be 'inf'"),
        (("strategy", "--wait", "-1"), "--wait cannot be '-1'"),
        (("strategy", "--quantum", "inf"), "--quantum cannot be inf"),
        (("vqpus", "--longest", "nan"), "Invalid value for '--longest'"),
        (("growth", "--yearly", "-2"), "cannot shrink by 100 % or more"),
        (("growth", "--yearly", "nan"), "--yearly cannot be nan"),
    ],
)
def test_numbers_that_cannot_be_are_refused(words: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused("plan", *words)


def test_a_phase_of_no_time_is_not_played() -> None:
    words = ("--rounds", 1, "--wait", 100, "--strategy", "workflow", "--json")
    found = json.loads(printed("plan", "strategy", *words, "--alone", 0))
    assert found["expected"][0]["wall"]["expected"] == pytest.approx(100 + 77.3 + 120)


def test_growth_ends_with_what_to_do() -> None:
    words = ("plan", "growth", "--payloads")
    assert "buy now: with 1 QPU, busy for 97%" in printed(*words, 2800)
    assert "buy now, and more than one" in printed(*words, 9000)
    assert "do not buy yet: at +50% per year, 1 QPU will be 85% busy in" in printed(*words, 1000)
    assert "do not buy: a demand that does not grow" in printed(*words, 1000, "--yearly", 0)


def test_growth_has_an_interval_and_a_wait_as_its_target() -> None:
    words = ("plan", "growth", "--payloads", 1000, "--json")
    one, two = json.loads(printed(*words))
    assert one["soonest"] < one["full_in"] < one["latest"] < two["latest"]
    assert "(90 % of all cases)" in one["advice"]
    certain = json.loads(printed(*words, "--spread", 0))[0]
    assert certain["soonest"] == certain["full_in"] == certain["latest"] == one["full_in"]
    strict = json.loads(printed(*words, "--wait-p95", 200))[0]
    assert strict["usual"] <= 200 and strict["full_at"] < one["full_at"]
    shrinking = json.loads(printed(*words, "--yearly", -0.5, "--spread", 0.01))[0]
    assert shrinking["full_in"] is None and shrinking["soonest"] is None


def test_the_queue_of_a_cluster_that_does_not_tell_is_not_made_up() -> None:
    told = refused("plan", "strategy", "--cluster", "local")
    assert "local does not say how long requests wait; give --wait" in told
