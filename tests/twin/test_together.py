"""Phases that ran together are played together, not one after the other."""

from pathlib import Path

import pytest

from qtide.core.ledger import Interval
from qtide.runs.run_options import RunOptions
from qtide.twin.advice import AdviceOptions, Prices
from qtide.twin.calibration import job_of
from qtide.twin.simulation import HybridStep


def test_tasks_beside_a_payload_are_one_step() -> None:
    """A task of 80 s beside a payload of 100 s takes 100 s, of which the QPU works 100."""
    spans = [
        Interval("j", "phase", "classical", 0, 80, "work", key="1.1"),
        Interval("j", "busy", "node/n1", 0, 80, "work"),
        Interval("j", "phase", "quantum", 0, 100, "Burst", key="1.2"),
        Interval("j", "busy", "qpu/q", 0, 100, "Burst"),
        Interval("j", "phase", "classical", 100, 110, "score", key="2"),
        Interval("j", "busy", "node/n1", 100, 110, "score"),
    ]
    job = job_of(spans, 1)
    first = HybridStep((80.0,), 100.0, names=("work",))
    assert job.steps == (first, HybridStep((10.0,), names=("score",)))
    assert (job.shortest, job.quantum) == (110.0, 100.0)


def test_auto_takes_its_prices_and_the_options_of_the_strategies(tmp_path: Path) -> None:
    given = {"strategy": "auto", "qpu_price": 2, "time_weight": 0.75, "runs": tmp_path}
    options = RunOptions("run", given).spec("synthetic").options
    assert (options["qpu_price"], options["node_price"]) == (2.0, None)
    assert options["time_weight"] == 0.75


def test_a_node_second_costs_what_the_user_says_of_time_or_of_nodes() -> None:
    assert AdviceOptions().prices(0.5) == Prices(1.0, 1.0, 10.0)
    assert AdviceOptions().prices(0.8).node == pytest.approx(0.25)
    assert AdviceOptions(node_price=3.0).prices(0.8) == Prices(1.0, 3.0, 10.0)
    assert AdviceOptions().prices(0.0).words() == "only node-seconds count"


def test_tasks_of_an_older_ledger_belong_to_the_phase_in_whose_time_they_ran() -> None:
    spans = [
        Interval("j", "phase", "classical", 0, 5, "2 × read", key="1"),
        Interval("j", "phase", "classical", 5, 9, "score", key="2"),
        Interval("j", "busy", "node/n1", 0, 5, "read"),
        Interval("j", "busy", "node/n2", 0, 3, "read"),
        Interval("j", "busy", "node/n1", 5, 9, "score"),
    ]
    assert [step.tasks for step in job_of(spans, 2).steps] == [(5, 3), (4,)]
    turned = [span._replace(key=f"1/{2 - n}") for n, span in enumerate(spans[2:4], 1)]
    assert job_of([*spans[:2], *turned, spans[4]], 2).steps[0].tasks == (3, 5)
