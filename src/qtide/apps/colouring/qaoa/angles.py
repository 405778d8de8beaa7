"""Find angles that lower the expectation value, by exact gradient or from noisy values alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.ansatz import Angles, Ansatz

Evaluations = Generator[Angles, float, Angles]
"""Yields angles, receives their expectation value, and returns the angles it found.

So the same optimiser works with values computed at once and values awaited from a device.
"""


def descend(gradient: Callable[[Angles], tuple[float, Angles]], start: Angles) -> Angles:
    """Find a nearby local minimum by value and gradient (L-BFGS)."""
    from scipy.optimize import minimize

    found = minimize(gradient, start, jac=True, method="L-BFGS-B")
    return np.asarray(found.x, dtype=np.float64)


def spsa(start: Angles, rounds: int, seed: int, size: int) -> Evaluations:
    """Optimise by Spall's SPSA: two values per round, along a random direction.

    Values grow with the size of the graph, so steps are divided by it. No angle changes by more
    than 0.3 per round.
    """
    rng = np.random.default_rng(seed)
    angles = start.copy()
    for number in range(rounds):
        direction = rng.choice((-1.0, 1.0), len(angles))
        reach = 0.15 / (number + 1) ** 0.101
        above = yield angles + reach * direction
        below = yield angles - reach * direction
        step = (above - below) / (2 * reach * size) / (number + 3) ** 0.602
        angles = angles - np.clip(step, -0.3, 0.3) * direction
    return angles


def drive(evaluations: Evaluations, value: Callable[[Angles], float]) -> Angles:
    """Run an optimiser on values computed at once."""
    try:
        angles = next(evaluations)
        while True:
            angles = evaluations.send(value(angles))
    except StopIteration as end:
        found: Angles = end.value
        return found


LARGEST = 10
"""Most vertices of a reference graph; beyond that, angles hardly change."""


def start_angles(graph: Graph, depth: int, penalty: int) -> Angles:
    """Return the angles of the reference graph for this graph's size and mean degree."""
    degree = round(2 * len(graph.edges) / graph.size)
    return np.array(_reference_angles(min(graph.size, LARGEST), degree, depth, penalty))


@lru_cache(maxsize=1024)
def _reference_angles(size: int, degree: int, depth: int, penalty: int) -> tuple[float, ...]:
    """Optimise for the reference graph depth by depth, each starting from the previous one."""
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
    """Interpolate the angles' curve over the layers to one more layer."""
    places = np.linspace(0, len(angles) - 1, len(angles) + 1)
    return np.interp(places, np.arange(len(angles)), angles)
