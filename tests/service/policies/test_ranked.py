"""The order of keys against a plain list of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.service.policies.policy import FULL, Key, Ranked

entries = st.lists(
    st.tuples(st.integers(0, 50), st.floats(0.0, 10.0)), max_size=60, unique_by=lambda pair: pair[0]
)


def ranked(pairs: list[tuple[int, float]]) -> tuple[Ranked, list[tuple[Key, float]]]:
    order = Ranked()
    for number, seconds in pairs:
        order.add((float(number), str(number)), seconds)
    return order, sorted(((float(number), str(number)), seconds) for number, seconds in pairs)


def slacks(model: list[tuple[Key, float]], rate: float) -> list[tuple[Key, float]]:
    before, found = 0.0, []
    for key, seconds in model:
        found.append((key, rate * key[0] - before))
        before += seconds
    return found


@given(entries, st.integers(0, 50), st.sets(st.integers(0, 50)))
def test_places_and_slacks_are_those_of_a_list(
    pairs: list[tuple[int, float]], asked: int, gone: set[int]
) -> None:
    order, model = ranked(pairs)
    for key, _ in [pair for pair in model if pair[0][0] in gone]:
        order.remove(key)
    model = [pair for pair in model if pair[0][0] not in gone]
    assert list(order) == [key for key, _ in model]
    assert (len(order), bool(order)) == (len(model), bool(model))
    key = (float(asked), str(asked))
    before = [seconds for each, seconds in model if each < key]
    assert order.before(key).tasks == len(before)
    assert order.before(key).seconds == pytest.approx(sum(before))
    for rate in (1.0, 0.5):
        since = [slack for each, slack in slacks(model, rate) if each >= key]
        assert order.slack(rate, key) == pytest.approx(min(since, default=math.inf))
    late = [each for each, slack in slacks(model, 1.0) if slack < asked]
    assert order.last_below(asked) in (late[-1] if late else None, *late[-2:])


def test_many_keys_are_split_into_blocks_and_found_again() -> None:
    order = Ranked()
    for number in range(5 * FULL):
        order.add((float(number * 7919 % (5 * FULL)), str(number)), 0.1)
    assert len(order) == 5 * FULL
    assert [key[0] for key in order] == [float(number) for number in range(5 * FULL)]
    assert order.before((float(3 * FULL),)).tasks == 3 * FULL
    assert order.before((float(3 * FULL),)).seconds == pytest.approx(0.3 * FULL)
    for key in list(order)[::2]:
        order.remove(key)
    assert order.before((float(3 * FULL),)).tasks == 3 * FULL // 2
    assert order.first[0] == 1.0
