"""Options of a QAOA step, and the conversion of its samples to independent sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

from qtide import Target
from qtide.apps.colouring.graph import Graph, bits, everything
from qtide.apps.colouring.independent import maximal, repaired
from qtide.apps.colouring.qaoa.ansatz import PENALTY
from qtide.core.errors import UsageError

Optimiser = Literal["gradient", "spsa", "none"]


@dataclass(frozen=True)
class QaoaOptions:
    """The circuit's depth, penalty and device, the optimiser, and the number of shots and sets."""

    depth: int = 1
    optimiser: Optimiser = "gradient"
    """`none` uses the angles of similar graphs unchanged; circuits on a device have no gradient."""
    rounds: int = 10
    """Rounds of `spsa`; each evaluates two points."""
    shots: int = 1000
    """Shots per circuit on a device, and samples to derive sets from; 0 simulates exactly."""
    sets: int = 20
    """Most sets to return, largest first."""
    penalty: int = PENALTY
    device: str | Mapping[str, Any] = "star"
    """A kind of device, or the properties that the service reports for a device."""
    spread: bool = False
    """Submit each fragment on its own, as several devices may run them at the same time."""

    def __post_init__(self) -> None:
        least = {"depth": 1, "rounds": 0, "shots": 0, "sets": 1, "penalty": 1}
        for name, limit in least.items():
            if getattr(self, name) < limit:
                raise UsageError(f"{name} is at least {limit}, not {getattr(self, name)}")
        if self.optimiser not in get_args(Optimiser):
            names = ", ".join(get_args(Optimiser))
            raise UsageError(f"there is no optimiser {self.optimiser!r}; there are: {names}")

    @property
    def samples(self) -> int:
        """Number of bit strings to derive sets from."""
        return self.shots or 1000


Options = TypeVar("Options", bound=QaoaOptions)


def for_target(options: Options, target: Target | None) -> Options:
    """Return the options for the run's device, or unchanged if it is not known.

    A class of devices, such as any:gate, gets the fragments one by one.
    """
    if target is None:
        return options
    spread = options.spread or target.name.startswith("any:")
    return replace(options, device=target.properties, spread=spread)


def independent_sets(graph: Graph, counts: Mapping[int, int], most: int) -> list[frozenset[int]]:
    """Return the largest sets, those of equal size by frequency; bit v of a string is vertex v.

    While a string has edges inside, the vertex with the most of them is dropped. Then vertices
    that still fit are added, those that exclude the fewest others first.
    """
    found: dict[int, int] = {}
    for string, count in counts.items():
        alone = repaired(graph.neighbours, string)
        chosen = maximal(graph.neighbours, everything(graph), alone)
        found[chosen] = found.get(chosen, 0) + count
    best = sorted(found, key=lambda mask: (-mask.bit_count(), -found[mask], mask))
    return [frozenset(bits(mask)) for mask in best[:most]]
