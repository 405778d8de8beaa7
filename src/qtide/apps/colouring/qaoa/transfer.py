"""Angles to start from, taken over from a reference graph of about the same size and degree.

Good angles depend little on the graph itself. They are a function of size, degree and depth alone,
not of what was solved before, so every process finds the same ones in whatever order it works.
"""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.ansatz import Angles, Ansatz
from qtide.apps.colouring.qaoa.optimisers import descend

LARGEST = 10
"""Reference graphs have no more vertices: beyond, angles hardly change."""


def start_angles(graph: Graph, depth: int, penalty: int) -> Angles:
    """The angles of the reference graph for this one."""
    degree = round(2 * len(graph.edges) / graph.size)
    return np.array(_reference_angles(min(graph.size, LARGEST), degree, depth, penalty))


@lru_cache(maxsize=1024)
def _reference_angles(size: int, degree: int, depth: int, penalty: int) -> tuple[float, ...]:
    """Optimised for the reference graph: depth by depth, each from the one before."""
    ansatz = Ansatz(_reference_graph(size, degree), penalty)
    if depth == 1:
        grid = product(np.linspace(-1.2, 1.2, 13), np.linspace(0.1, 1.5, 8))
        start = np.array(min(grid, key=lambda pair: ansatz.expectation(np.array(pair))))
    else:
        before = np.array(_reference_angles(size, degree, depth - 1, penalty))
        start = np.concatenate([_stretched(half) for half in np.split(before, 2)])
    return tuple(descend(ansatz.gradient, start).tolist())


def _reference_graph(size: int, degree: int) -> Graph:
    pairs = list(combinations(range(size), 2))
    edges = min(len(pairs), size * degree // 2)
    return Graph.of(size, random.Random(f"{size} {degree}").sample(pairs, edges))


def _stretched(angles: Angles) -> Angles:
    """One angle more, on the same curve over the layers."""
    places = np.linspace(0, len(angles) - 1, len(angles) + 1)
    return np.interp(places, np.arange(len(angles)), angles)
