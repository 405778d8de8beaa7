"""How long a task takes is learnt from others of its size."""

from __future__ import annotations

from qtide.service.device.estimates import ENOUGH, FIRST, SAFETY, DurationEstimate
from qtide.service.task import CHEAP_QUBITS, Extent

SMALL, LARGE = Extent.of(500, 100, 2, 1), Extent.of(400_000, 100, 2, 1)
LIMIT = 600.0


def test_at_first_each_circuit_is_supposed_to_take_a_second() -> None:
    assert DurationEstimate(LIMIT).seconds(SMALL, 3) == 3 * FIRST
    assert DurationEstimate(LIMIT).seconds(SMALL, 10_000) == LIMIT


def test_large_circuits_do_not_change_what_small_ones_should_take() -> None:
    estimate = DurationEstimate(LIMIT)
    for _ in range(ENOUGH):
        estimate.learn(SMALL, 0.0026)
        estimate.learn(LARGE, 1.85)
    assert estimate.seconds(SMALL, 1) < 0.003
    assert estimate.seconds(LARGE, 1) > 1.8
    assert estimate.longest(LARGE) == SAFETY * 1.85


def test_a_size_never_seen_follows_from_the_nearest_and_may_take_up_to_the_limit() -> None:
    estimate = DurationEstimate(LIMIT)
    estimate.learn(SMALL, 0.01)
    wider = SMALL._replace(qubits=CHEAP_QUBITS + 3)
    assert estimate.seconds(wider, 1) == 0.01 * 2**3
    assert estimate.seconds(SMALL._replace(qubits=CHEAP_QUBITS), 1) == 0.01
    assert estimate.seconds(SMALL._replace(qubits=2000), 1) == LIMIT
    assert estimate.longest(wider) == LIMIT
    assert estimate.longest(SMALL) == LIMIT, "one task is not enough to trust"


def test_a_task_takes_no_longer_than_larger_ones_did() -> None:
    estimate = DurationEstimate(LIMIT)
    for _ in range(ENOUGH):
        estimate.learn(LARGE._replace(qubits=20), 2.0)
    assert estimate.longest(SMALL) == SAFETY * 2.0
    assert estimate.longest(LARGE._replace(qubits=21)) == LIMIT


def test_what_the_device_expects_is_believed_until_such_a_task_has_run() -> None:
    estimate = DurationEstimate(LIMIT)
    estimate.learn(SMALL, 0.01)
    wider = SMALL._replace(qubits=2000)
    assert estimate.seconds(wider, 1) == LIMIT
    assert estimate.seconds(wider, 1, expected=0.7) == 0.7
    assert estimate.seconds(wider, 1, expected=2 * LIMIT) == LIMIT
    estimate.learn(wider, 0.5)
    assert estimate.seconds(wider, 1, expected=0.7) == 0.5
