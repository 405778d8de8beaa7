from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from qtide.core.ledger import Cover, merge, outside, seconds

stretches = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def moments(cover: Cover) -> set[int]:
    """The seconds, as integers, in a cover with integer bounds."""
    return {moment for start, end in cover for moment in range(int(start), int(end))}


def test_overlapping_and_touching_stretches_become_one() -> None:
    assert merge([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]


def test_empty_and_backward_stretches_are_dropped() -> None:
    assert merge([(1, 1), (3, 2)]) == []


def test_a_gap_is_closed_if_it_is_small_enough() -> None:
    assert merge([(0, 1), (2, 3), (5, 6)], gap=1) == [(0, 3), (5, 6)]


def test_outside_cuts_each_stretch_at_the_limits() -> None:
    assert outside([(0, 10), (12, 14)], [(1, 2), (4, 13)]) == [(0, 1), (2, 4), (13, 14)]


@given(stretches)
def test_a_cover_is_sorted_disjoint_and_has_the_same_moments(given_stretches: Cover) -> None:
    cover = merge(given_stretches)
    ends = [moment for stretch in cover for moment in stretch]
    assert all(earlier < later for earlier, later in pairwise(ends))
    assert moments(cover) == moments(given_stretches)
    assert seconds(cover) == len(moments(cover))


@given(stretches)
def test_merging_twice_changes_nothing(given_stretches: Cover) -> None:
    assert merge(merge(given_stretches)) == merge(given_stretches)


@given(stretches, stretches)
def test_outside_is_the_difference(some: Cover, limits: Cover) -> None:
    rest = outside(merge(some), merge(limits))
    assert moments(rest) == moments(some) - moments(limits)
    assert rest == merge(rest)
