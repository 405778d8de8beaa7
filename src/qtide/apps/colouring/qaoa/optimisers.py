"""Angles that lower the expectation value: by an exact gradient, or from noisy values alone."""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np

from qtide.apps.colouring.qaoa.ansatz import Angles

Evaluations = Generator[Angles, float, Angles]
"""Yields angles, is sent their expectation value, and returns the angles it has found.

So the same optimiser works whether values are computed at once or awaited from a device.
"""


def descend(gradient: Callable[[Angles], tuple[float, Angles]], start: Angles) -> Angles:
    """The local minimum nearby, by value and gradient (L-BFGS)."""
    from scipy.optimize import minimize

    found = minimize(gradient, start, jac=True, method="L-BFGS-B")
    return np.asarray(found.x, dtype=np.float64)


def spsa(start: Angles, rounds: int, seed: int, size: int) -> Evaluations:
    """Spall's stochastic approximation: two values a round, in a random direction.

    Values grow with the size of the graph, so steps are scaled by it; none is longer than 0.3.
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
    """Run an optimiser on values that are computed at once."""
    try:
        angles = next(evaluations)
        while True:
            angles = evaluations.send(value(angles))
    except StopIteration as end:
        found: Angles = end.value
        return found
