import json

import pytest
from hypothesis import given

from qtide.core.ledger import Interval
from qtide.core.metrics import JobTime, Metrics, measure
from tests.core.ledger_samples import some, two_jobs, valid_ledgers


def test_two_jobs_by_hand() -> None:
    assert measure(two_jobs()) == Metrics(
        jobs=(JobTime("a", 0, 10, 10), JobTime("b", 4, 14, 10)),
        total=14,
        nodes_held=10 + 4 + 9,
        nodes_busy=3 + 1 + 2,
        qpu_busy=7,
        qpu_occupancy=0.5,
        slots_held=8,
        quantum=5 + 4,
        queue_nodes=1,
        queue_qpu=1,
    )


def test_derived_figures() -> None:
    metrics = measure(two_jobs())
    assert metrics.queue == 2
    assert metrics.mean_wall == 10
    assert metrics.efficiency == pytest.approx(6 / 23)


def test_nothing_is_zero() -> None:
    metrics = measure([])
    assert metrics == Metrics()
    assert (metrics.mean_wall, metrics.efficiency, metrics.queue) == (0, 0, 0)


def test_without_a_run_there_is_no_occupancy() -> None:
    metrics = measure([Interval("a", "busy", "qpu/q", 0, 3)])
    assert (metrics.qpu_busy, metrics.qpu_occupancy, metrics.jobs) == (3, 0, ())


def test_overlaps_of_one_job_on_a_lane_count_once() -> None:
    spans = [(0, 4), (2, 6), (3, 5)]
    metrics = measure([Interval("a", "held", "node/n", start, end) for start, end in spans])
    assert metrics.nodes_held == 6


def test_wall_leaves_out_the_time_between_two_drivers() -> None:
    metrics = measure([Interval("a", "run", "", 0, 3), Interval("a", "run", "", 10, 14)])
    assert metrics.jobs == (JobTime("a", 0, 14, 7),)
    assert metrics.total == 14


def test_two_devices_share_the_occupancy() -> None:
    run = Interval("a", "run", "", 0, 10)
    busy = [Interval("a", "busy", f"qpu/{i}", 0, 10 - 4 * i) for i in range(2)]
    assert measure([run, *busy]).qpu_occupancy == pytest.approx(0.8)


def test_as_dict_is_json_with_the_derived_figures() -> None:
    figures = json.loads(json.dumps(measure(two_jobs()).as_dict()))
    assert (figures["jobs"], figures["open_ended"]) == (2, 0)
    assert figures["by_job"][1] == {"job": "b", "start": 4, "end": 14, "wall": 10}
    assert (figures["queue"], figures["mean_wall"], figures["total"]) == (2, 10, 14)
    assert figures["efficiency"] == pytest.approx(6 / 23)


@some
@given(valid_ledgers())
def test_shares_lie_between_zero_and_one(ledger: list[Interval]) -> None:
    metrics = measure(ledger)
    assert 0 <= metrics.qpu_occupancy <= 1
    assert 0 <= metrics.efficiency <= 1 + 1e-12
    assert metrics.nodes_held <= 4 * metrics.total
    assert metrics.qpu_busy <= metrics.slots_held + 1e-9


@some
@given(valid_ledgers())
def test_to_write_all_twice_changes_nothing(ledger: list[Interval]) -> None:
    once, twice = measure(ledger), measure([*ledger, *ledger])
    assert (once.nodes_held, once.qpu_busy) == (twice.nodes_held, twice.qpu_busy)
    assert set(once.jobs) == set(twice.jobs)


def test_starting_is_no_work() -> None:
    metrics = measure(
        [
            Interval("a", "held", "node/n", 0, 10),
            Interval("a", "starting", "node/n", 0, 2),
            Interval("a", "busy", "node/n", 2, 8),
            Interval("a", "starting", "node/n", 2, 3.5),
        ]
    )
    assert (metrics.nodes_starting, metrics.nodes_busy) == (3.5, 4.5)
    assert metrics.efficiency == pytest.approx(0.45)


def test_tasks_that_share_a_node_count_by_their_cores() -> None:
    node = "node/n1"
    found = measure(
        [
            Interval("a", "run", "driver", 0.0, 10.0),
            Interval("a", "held", node, 0.0, 10.0, part=(8, 2)),
            Interval("a", "busy", node, 0.0, 4.0, part=(2, 1)),
            Interval("a", "busy", node, 0.0, 5.0, part=(1, 0)),
            Interval("a", "busy", node, 6.0, 8.0),
        ]
    )
    assert (found.nodes_held, found.nodes_busy) == (10.0, 7.0)
    assert (found.cores_held, found.cores_busy) == (80.0, 8.0 + 5.0 + 16.0)
    assert (found.gpus_held, found.gpus_busy) == (20.0, 4.0 + 4.0)
    assert found.divided
    assert found.core_efficiency == 29 / 80
