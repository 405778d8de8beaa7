"""A comparison tells the truth: no strategy pays for, or knows of, what ran before it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qtide.core.ledger import Ledger
from qtide.runs.comparison import Case, _verdict, compare, notes, verdicts
from qtide.runs.earlier import with_precedent
from qtide.runs.folder import WARM_UP, RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names

PROGRAM = "tests.runs.measured_program:measured"
ORDERS = [strategy_names()[n:] + strategy_names()[:n] for n in range(5)] + [strategy_names()[::-1]]


def figures(folder: Path, spec: Spec, order: Sequence[str]) -> dict[Any, Any]:
    """All figures, and every span of every ledger except for the names of nodes."""
    cases = compare(folder, spec, order, [1, 2], lambda *_: None)
    spans = {
        (case.strategy, case.jobs, run.name): sorted(
            (each.what, each.lane.partition("/")[0], each.start, each.end, each.label)
            for each in run.intervals()
        )
        for case in cases
        for run in case.runs
    }
    return {(case.strategy, case.jobs): case.as_dict() for case in cases} | spans


def recorded(folder: Path, spec: Spec, seconds: dict[str, list[float]]) -> RunFolder:
    """A run that was done in real time, with these calls one after the other."""
    run = RunFolder.create(folder, "earlier", spec)
    clock = [0.0]
    ledger = Ledger(run.name, lambda: clock[0], run.ledger)
    for name, calls in seconds.items():
        for each in calls:
            with ledger.span("busy", "node/n1", name):
                clock[0] += each
    ledger.close()
    run.finish({"value": None})
    return run


def test_the_order_of_strategies_does_not_matter(tmp_path: Path) -> None:
    spec = Spec("synthetic", ["published", "--iterations", "2"], cluster="simulated:3")
    found = [figures(tmp_path / str(n), spec, order) for n, order in enumerate(ORDERS)]
    assert all(each == found[0] for each in found)


def test_the_order_does_not_matter_for_durations_of_an_earlier_run_either(tmp_path: Path) -> None:
    recorded(tmp_path, Spec(PROGRAM), {"note": [3.0, 1.0, 2.0, 4.0, 1.5, 2.5]})
    spec = with_precedent(Spec(PROGRAM, cluster="simulated:3"), tmp_path)
    orders = ORDERS[:1] + ORDERS[-1:]
    found = [figures(tmp_path / str(n), spec, order) for n, order in enumerate(orders)]
    assert found[0] == found[1]
    assert found[0]["static", 1]["nodes_busy"] == pytest.approx(14.0)
    assert found[0]["elastic", 2]["nodes_busy"] == pytest.approx(28.0)


def test_every_node_is_warm_before_any_strategy_is_timed(tmp_path: Path) -> None:
    """The program uses two nodes of three, but which two changes from strategy to strategy."""
    spec = Spec(PROGRAM, cluster="local:3")
    compare(tmp_path, spec, strategy_names(), [1], lambda *_: None, warm_up=True)
    states = {file.parent.parent.name: file.read_text().split() for file in tmp_path.rglob("notes")}
    assert states.pop(WARM_UP).count("cold") == 3
    assert states == dict.fromkeys(strategy_names(), ["warm"] * 6)


def test_a_restless_machine_is_told(tmp_path: Path) -> None:
    """The same work took twice as long under one strategy as under the other."""
    runs = {
        name: recorded(tmp_path / name, Spec(PROGRAM, strategy=name), {"note": [seconds]})
        for name, seconds in [("static", 1.0), ("workflow", 1.1), ("elastic", 2.0)]
    }
    cases = [Case(name, 1, (run,)) for name, run in runs.items()]
    assert "The same work took 1.0 to 2.0 node-seconds" in notes(cases)[-1]
    assert len(notes(cases[:2])) == 1


def test_real_work_takes_as_long_in_virtual_time_as_in_an_earlier_run(tmp_path: Path) -> None:
    """Call by call; one more round than there was takes the mean of them."""
    recorded(tmp_path, Spec(PROGRAM, time_scale=0.5), {"note": [6.0, 2.0, 4.0]})
    spec = with_precedent(Spec(PROGRAM, cluster="simulated"), tmp_path)
    cases = compare(tmp_path / "it", spec, ["static"], [1], lambda *_: None)
    assert cases[0].panel().metrics.total == pytest.approx(0.02 + 3 + 2 + 2 + 2)
    assert any("The task note took as long as in the run" in line for line in notes(cases))


def test_without_an_earlier_run_it_says_so(tmp_path: Path) -> None:
    spec = with_precedent(Spec(PROGRAM, cluster="simulated"), tmp_path)
    cases = compare(tmp_path / "it", spec, ["static"], [1], lambda *_: None)
    said = notes(cases)[-1]
    assert "The task note took no time at all, as there is no earlier run" in said
    assert "--cluster local" in said


def test_what_pretends_needs_no_earlier_run(tmp_path: Path) -> None:
    recorded(tmp_path, Spec("synthetic"), {"work": [1.0]})
    spec = with_precedent(Spec("synthetic", cluster="simulated"), tmp_path)
    cases = compare(tmp_path / "it", spec, ["static"], [1], lambda *_: None)
    assert cases[0].panel().metrics.total == pytest.approx(997.2)
    assert len(notes(cases)) == 2


def test_the_earlier_run_is_the_one_most_like_this_one(tmp_path: Path) -> None:
    same = recorded(tmp_path / "a", Spec(PROGRAM, ["--rounds", "3"]), {"note": [1.0]})
    recorded(tmp_path / "b", Spec(PROGRAM), {"note": [2.0]})
    recorded(tmp_path / "c", Spec("synthetic"), {"note": [3.0]})
    recorded(tmp_path / "d", Spec(PROGRAM, cluster="simulated"), {"note": [4.0]})
    wanted = Spec(PROGRAM, ["--rounds", "3"], cluster="simulated")
    assert with_precedent(wanted, tmp_path).options["durations"] == str(same.path)
    named = Spec(PROGRAM, cluster="simulated", options={"durations": "b/earlier"})
    assert with_precedent(named, tmp_path).options["durations"] == str(tmp_path / "b/earlier")
    alone = Spec(PROGRAM, cluster="simulated", options={"durations": "none"})
    assert with_precedent(alone, tmp_path) == alone
    assert with_precedent(Spec(PROGRAM), tmp_path) == Spec(PROGRAM)


@pytest.mark.parametrize(
    ("named", "asked"),
    [("/here/one.py:one", "/here/one.py"), ("/here/one.py", "/here/one.py:one")],
)
def test_a_run_from_python_is_an_earlier_run_of_the_same_file(
    tmp_path: Path, named: str, asked: str
) -> None:
    """Python names the function as well; the command line may leave it out."""
    run = recorded(tmp_path, Spec(named, cluster="local:1"), {"note": [1.0]})
    found = with_precedent(Spec(asked, cluster="simulated"), tmp_path)
    assert found.options["durations"] == str(run.path)
    other = with_precedent(Spec("/here/other.py", cluster="simulated"), tmp_path)
    assert other.options["durations"] == ""


def test_a_verdict_says_who_won_by_what_weighing_and_where_it_flips() -> None:
    said = _verdict(1, {"static": (100.0, 300.0), "workflow": (150.0, 120.0), "split": (160, 300)})
    assert said.startswith("1 job: workflow costs least if a second of a job counts as much")
    assert "150.0 s and 120.0 node-seconds per job; above 0.78, static would." in said
    even = _verdict(2, {"static": (100.0, 300.0), "elastic": (100.0, 50.0)})
    assert even.startswith("2 jobs: elastic") and even.endswith("so it does at every other weight.")
    near = _verdict(1, {"static": (100.0, 9999.0), "elastic": (100.1, 50.0)})
    assert near.endswith("so it does at every other weight.")
    equal = _verdict(1, {"static": (9.0, 9.0), "workflow": (9.0, 3.0), "elastic": (9.0, 3.0)})
    assert equal.startswith("1 job: workflow and elastic cost least if") and "so they do" in equal


def test_a_comparison_of_two_strategies_ends_with_a_verdict(tmp_path: Path) -> None:
    spec = Spec("synthetic", ["published", "--iterations", "1"], cluster="simulated:3")
    cases = compare(tmp_path, spec, ["static", "elastic"], [1, 2], lambda *_: None)
    one, two = verdicts(cases)
    assert one.startswith("1 job: elastic costs least") and two.startswith("2 jobs: ")
    assert verdicts(cases[:1]) == []


def test_a_verdict_weighs_what_the_site_charges(tmp_path: Path) -> None:
    """64 for a node's second changes nothing; it is one node-second."""
    words = ["published", "--iterations", "1"]
    spec = Spec("synthetic", words, cluster="simulated:3", options={"billing": "CPU=1"})
    charged = verdicts(compare(tmp_path / "a", spec, ["static", "elastic"], [1], lambda *_: None))
    plain = replace(spec, options={})
    usual = verdicts(compare(tmp_path / "b", plain, ["static", "elastic"], [1], lambda *_: None))
    assert charged == [
        each.replace("node-seconds per job", "node-seconds, as the site charges them, per job")
        for each in usual
    ]
