"""A plan: which wires to cut for a device of so many qubits, and what that will cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, islice

from qtide.apps.colouring.cutting.fragment import Fragment
from qtide.apps.colouring.cutting.partition import Partition
from qtide.apps.colouring.cutting.paulis import SAMPLING_OVERHEAD
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.masks import bits, components, everything, mask_of
from qtide.devices.profile import Profile
from qtide.errors import UsageError

MOST_SEPARATORS = 3
MOST_TRIALS = 20_000
"""So many sets of separators are looked at: about a second."""


@dataclass(frozen=True)
class Budget:
    """What a cut circuit may cost at most."""

    cuts: int = 6
    """Putting the fragments together takes time by 4 to the power of the cuts."""
    circuits: int = 1000
    """Per evaluation; a device takes no more in one payload."""


@dataclass(frozen=True)
class Overhead:
    """What one evaluation of the cut circuit costs."""

    fragments: int
    cuts: int
    circuits: int
    sampling: int
    """About so many times as many shots are needed for the error of the uncut circuit."""
    seconds: float | None
    """On a device whose timing is known."""

    def __str__(self) -> str:
        expected = "" if self.seconds is None else f", {self.seconds:.3g} s expected"
        return (
            f"{_several(self.cuts, 'cut')}, {_several(self.fragments, 'fragment')}, "
            f"{_several(self.circuits, 'circuit')} per evaluation, "
            f"sampling overhead {self.sampling:,}{expected}"
        )


@dataclass(frozen=True)
class Plan:
    """A partition and its fragments."""

    partition: Partition
    depth: int

    @cached_property
    def fragments(self) -> tuple[Fragment, ...]:
        """The fragments of the cut circuit."""
        return self.partition.fragments(self.depth)

    @cached_property
    def cuts(self) -> int:
        """How many wires are cut."""
        return sum(len(fragment.leaving) for fragment in self.fragments)

    @cached_property
    def circuits(self) -> int:
        """How many circuits one evaluation takes."""
        return sum(fragment.circuits for fragment in self.fragments)

    @cached_property
    def qubits(self) -> int:
        """The qubits of the largest fragment."""
        return max(len(fragment.wires) for fragment in self.fragments)

    def overhead(self, profile: Profile | None, shots: int) -> Overhead:
        """What an evaluation with that many shots per circuit costs on a device."""
        seconds = profile.payload_s + profile.shot_s * shots * self.circuits if profile else None
        factor = SAMPLING_OVERHEAD**self.cuts
        return Overhead(len(self.fragments), self.cuts, self.circuits, factor, seconds)


USUAL_BUDGET = Budget()


@lru_cache(maxsize=1024)
def plan_cuts(graph: Graph, qubits: int, depth: int = 1, budget: Budget = USUAL_BUDGET) -> Plan:
    """The plan with the fewest circuits for a device; refuses what would explode."""
    best: Plan | None = None
    for separators in range(min(MOST_SEPARATORS, max(graph.size - 1, 0)) + 1):
        found = min(_plans(graph, separators, qubits, depth), key=_price, default=None)
        if found is not None and (best is None or _price(found) < _price(best)):
            best = found
        if best is not None and _within(best, budget):
            return best
    if best is None:
        raise UsageError(
            f"no {MOST_SEPARATORS} vertices separate the graph of {graph.size} vertices into parts "
            f"for {qubits} qubits at depth {depth}; take a device with more qubits, or another step"
        )
    raise UsageError(
        f"for {qubits} qubits, the graph of {graph.size} vertices takes "
        f"{_several(best.cuts, 'cut')} and {_several(best.circuits, 'circuit')} per evaluation, "
        f"and at most {budget.cuts} and {budget.circuits:,} are allowed; "
        "take a device with more qubits, or less depth"
    )


def _price(plan: Plan) -> tuple[int, int, int]:
    return plan.circuits, plan.cuts, plan.qubits


def _within(plan: Plan, budget: Budget) -> bool:
    return plan.cuts <= budget.cuts and plan.circuits <= budget.circuits


def _plans(graph: Graph, separators: int, qubits: int, depth: int) -> Iterator[Plan]:
    """All plans with that many separators whose fragments fit the device."""
    for chosen in islice(combinations(range(graph.size), separators), MOST_TRIALS):
        parts = _packed(graph, chosen, qubits, depth)
        if parts is not None:
            plan = Plan(Partition(graph, chosen, parts), depth)
            if plan.qubits <= qubits:
                yield plan


def _packed(
    graph: Graph, separators: tuple[int, ...], qubits: int, depth: int
) -> tuple[tuple[int, ...], ...] | None:
    """The components without the separators, packed into few parts: the largest first."""
    apart = mask_of(separators)
    found = components(graph.neighbours, everything(graph) & ~apart)
    if separators and len(found) < 2:
        return None
    pieces = 1 if depth == 1 else depth // 2 + 1 if len(found) == 2 else depth
    packed: list[int] = []
    for component in sorted(found, key=lambda mask: (-mask.bit_count(), mask)):
        for place, part in enumerate(packed):
            if _need(graph, apart, part | component, pieces) <= qubits:
                packed[place] |= component
                break
        else:
            if _need(graph, apart, component, 1) > qubits:
                return None
            packed.append(component)
    ordered = [*packed[:1], *packed[2:], *packed[1:2]]  # at the ends, wires are cut on one side
    return tuple(tuple(bits(part)) for part in ordered)


def _need(graph: Graph, separators: int, part: int, pieces: int) -> int:
    """The qubits of a part with the pieces of the separators' wires next to it."""
    beside = 0
    for vertex in bits(part):
        beside |= graph.neighbours[vertex] & separators
    return part.bit_count() + pieces * beside.bit_count()


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
