"""Covers: sorted, disjoint stretches of time. Only on these are sums over a ledger correct."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from qtide.ledger.ledger import Interval, What

Stretch = tuple[float, float]
Cover = list[Stretch]
Covers = dict[tuple[What, str, str], Cover]


def merge(stretches: Iterable[Stretch], gap: float = 0.0) -> Cover:
    """Join stretches that overlap, touch or lie at most `gap` apart; drop the empty ones."""
    cover: Cover = []
    for start, end in sorted(each for each in stretches if each[1] > each[0]):
        if cover and start <= cover[-1][1] + gap:
            cover[-1] = (cover[-1][0], max(cover[-1][1], end))
        else:
            cover.append((start, end))
    return cover


def seconds(cover: Cover) -> float:
    """The total length of the stretches."""
    return sum(end - start for start, end in cover)


def outside(cover: Cover, limits: Cover) -> Cover:
    """The parts of `cover` that lie in none of `limits`."""
    rest: Cover = []
    first = 0
    for start, end in cover:
        while first < len(limits) and limits[first][1] <= start:
            first += 1
        at, index = start, first
        while index < len(limits) and limits[index][0] < end:
            rest.append((at, limits[index][0]))
            at, index = limits[index][1], index + 1
        rest.append((at, end))
    return [each for each in rest if each[1] > each[0]]


def covers(intervals: Iterable[Interval]) -> Covers:
    """The cover of each (what, lane, job) in the ledger."""
    stretches: defaultdict[tuple[What, str, str], Cover] = defaultdict(list)
    for each in intervals:
        stretches[each.what, each.lane, each.job].append((each.start, each.end))
    return {key: merge(value) for key, value in stretches.items()}


def runs(found: Covers) -> dict[str, Cover]:
    """When each job's driver ran."""
    lived: defaultdict[str, Cover] = defaultdict(list)
    for (what, _, job), cover in found.items():
        if what == "run":
            lived[job] += cover
    return {job: merge(cover) for job, cover in lived.items()}
