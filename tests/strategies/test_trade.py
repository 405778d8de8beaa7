"""What elastic weighs: node by node, time against nodes, on what was seen."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.core.forecasts import Forecast
from qtide.strategies.trade import NodeVerdict, Stage, Trade


def forecast(waits: list[float], start: float = 0.0) -> Forecast:
    made = Forecast(lambda: 0.0, lambda _: sum(waits) / len(waits), lambda: tuple(waits))
    made.node_started(start)
    return made


def trade(favour: float, waits: list[float], start: float = 0.0, charge: float = 1.0) -> Trade:
    return Trade(favour, forecast(waits, start), 8, charge)


def over_a_gap(trade: Trade, number: int, tasks: list[float | None], gap: float) -> NodeVerdict:
    """The verdict before one phase of which nothing follows."""
    return trade.over_a_gap(number, [Stage(gap, 0.0, tasks)])


def test_a_node_that_comes_at_once_is_never_kept_over_a_gap() -> None:
    assert not over_a_gap(trade(0.9, [0.0]), 1, [10.0], gap=1.0).keep


def test_a_node_is_kept_if_getting_it_again_costs_more() -> None:
    """Asked for ahead it would come in time, but has to start anew, idle for those 5 s."""
    assert over_a_gap(trade(0.5, [0.0], start=5.0), 1, [10.0], gap=4.0).keep
    assert not over_a_gap(trade(0.5, [0.0], start=5.0), 1, [10.0], gap=6.0).keep


def test_an_overdue_node_is_kept_until_idling_has_cost_as_much_as_its_return() -> None:
    assert trade(0.5, [2.0], start=3.0).patience() == 5.0
    assert trade(0.0, [2.0], start=3.0).patience() == 3.0
    assert trade(0.5, [2.0], start=3.0).patience(price=3.0) == 2.0
    assert trade(1.0, [2.0], start=3.0).patience() == 5.0


def test_waits_that_vary_are_a_reason_to_keep() -> None:
    sure, unsure = trade(0.5, [30.0, 30.0]), trade(0.5, [0.0, 60.0])
    assert not over_a_gap(
        sure, 1, [10.0], gap=35.0
    ).keep  # asked for 30 s ahead, it is there in time
    assert over_a_gap(unsure, 1, [10.0], gap=25.0).keep


def test_a_node_that_is_charged_more_is_kept_for_less_time() -> None:
    stages = [Stage(25.0, 0.0, [10.0])]
    assert trade(0.5, [0.0, 60.0]).over_a_gap(1, stages).keep
    assert not trade(0.5, [0.0, 60.0], charge=4.0).over_a_gap(1, stages).keep
    assert trade(0.5, [10.0], start=2.0, charge=0.1).patience() > 11
    assert trade(0.5, [10.0], start=2.0, charge=10.0).patience() < 5
    few = trade(0.5, [5.0], start=2.0, charge=10.0).nodes_for([10.0] * 8, held=0)
    assert few < trade(0.5, [5.0], start=2.0).nodes_for([10.0] * 8, held=0)


def test_a_node_that_brings_little_is_not_kept() -> None:
    """The second node would do a task of a second, which the first can do as well."""
    long = trade(0.5, [100.0])
    assert over_a_gap(long, 1, [20.0, 1.0], gap=10.0).keep
    assert not over_a_gap(long, 2, [20.0, 1.0], gap=10.0).keep
    assert not over_a_gap(long, 3, [20.0, 1.0], gap=0.0).keep  # nothing to do for a third


@pytest.mark.parametrize(
    ("tasks", "held", "waits", "start", "nodes"),
    [
        ([0.2] * 8, 0, [0.0], 2.0, 1),  # short ones share a node instead of starting seven more
        ([80.0] * 3, 0, [0.0], 2.0, 3),  # long ones have one each
        ([80.0] * 3, 1, [500.0], 2.0, 1),  # who would come late is not asked for
        ([None, 5.0], 0, [0.0], 2.0, 2),  # what is not known gets one each
        ([], 0, [0.0], 2.0, 0),
    ],
)
def test_as_many_nodes_as_pay_for_themselves(
    tasks: list[float | None], held: int, waits: list[float], start: float, nodes: int
) -> None:
    assert trade(0.5, waits, start).nodes_for(tasks, held) == nodes


seconds = st.floats(0.0, 1000.0)


def more_with_time(decide: Callable[[Trade], float], waits: list[float], start: float) -> None:
    found = [decide(trade(favour, waits, start)) for favour in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert found == sorted(found)


@given(st.lists(seconds, min_size=1, max_size=16), seconds, seconds)
def test_who_favours_time_keeps_whatever_others_keep(
    waits: list[float], start: float, gap: float
) -> None:
    more_with_time(lambda each: over_a_gap(each, 1, [10.0], gap).keep, waits, start)


@given(st.lists(seconds, min_size=1, max_size=16), seconds)
def test_who_favours_time_asks_no_later(waits: list[float], start: float) -> None:
    more_with_time(lambda each: each.ahead(), waits, start)


@given(st.lists(seconds, min_size=1, max_size=8), st.integers(0, 8), seconds, seconds)
def test_who_favours_time_asks_for_no_fewer_nodes(
    tasks: list[float], held: int, wait: float, start: float
) -> None:
    more_with_time(lambda each: each.nodes_for(tasks, held), [wait], start)


WIDE, NARROW = [2.0] * 6, [0.05]


def test_a_node_is_kept_through_a_narrow_phase_between_wide_ones() -> None:
    """A merge of 0.05 s has no task for the second node; to start it again would take 5 s."""
    stages = [Stage(0.0, 0.05, NARROW), Stage(0.05, 4.0, WIDE)]
    assert trade(0.5, [0.0], start=5.0).over_a_gap(2, stages).keep
    assert not trade(0.5, [0.0], start=5.0).over_a_gap(2, stages[:1]).keep


def test_a_node_is_given_back_before_a_gap_that_pays_though_a_narrow_phase_comes_first() -> None:
    stages = [Stage(0.0, 0.05, NARROW), Stage(60.0, 4.0, WIDE)]
    verdict = trade(0.5, [0.0], start=5.0).over_a_gap(2, stages)
    assert not verdict.keep and verdict.gap == 60.0
    assert verdict.returning < verdict.idling


def test_later_phases_pay_for_a_node_that_one_phase_would_not() -> None:
    short = [0.5] * 6
    later = [Stage(0.1 + n, 1.0, short) for n in range(6)]
    assert trade(0.5, [0.0], start=5.0).nodes_for(short, held=1) == 1
    assert trade(0.5, [0.0], start=5.0).nodes_for(short, held=1, later=later) > 1
