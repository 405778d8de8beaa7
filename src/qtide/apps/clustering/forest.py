"""Disjoint sets as a forest of parent links, for DBSCAN and for cutting a linkage tree."""

from __future__ import annotations

from qtide.apps.clustering.arrays import Indices
from qtide.apps.clustering.compiled import compiled


@compiled
def root(parents: Indices, item: int) -> int:
    """The representative of the item's set; the path to it is halved."""
    while parents[item] != item:
        parents[item] = parents[parents[item]]
        item = parents[item]
    return item


@compiled
def join(parents: Indices, first: int, second: int) -> None:
    """Merge two sets; the smaller representative stays, so results do not depend on order."""
    first = root(parents, first)
    second = root(parents, second)
    if first < second:
        parents[second] = first
    else:
        parents[first] = second


@compiled
def join_all(parents: Indices, firsts: Indices, seconds: Indices) -> None:
    """Merge the sets of firsts[i] and seconds[i] for every i."""
    for edge in range(firsts.size):
        join(parents, firsts[edge], seconds[edge])


@compiled
def flatten(parents: Indices) -> None:
    """Link every item directly to its representative."""
    for item in range(parents.size):
        parents[item] = root(parents, item)
