"""Steps: the ways to find independent sets. Further ones are found by entry points."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import signature

from qtide import Target
from qtide.apps.colouring.graph import Graph
from qtide.plugins import Plugins

Step = Callable[[Graph, int], Awaitable[list[frozenset[int]]]]
"""Takes a graph with edges and a seed, awaits phases, and gives sets that should be independent.

Whatever it gives is verified; the better its sets are, the sooner a good colouring is found. A step
with a parameter `target` is given the device of the run.
"""

STEPS: Plugins[Step] = Plugins("qtide.sets", "way to find independent sets")


def step_for(name: str, target: Target | None) -> Step:
    """The step of that name, for the device of the run."""
    step: Callable[..., Awaitable[list[frozenset[int]]]] = STEPS.load(name)
    return partial(step, target=target) if "target" in signature(step).parameters else step
