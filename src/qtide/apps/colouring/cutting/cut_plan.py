"""Cutting plans: which wires to cut so that the fragments fit a device, and the cost."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations, islice

from qtide.apps.colouring.cutting.fragment import SAMPLING_OVERHEAD, Fragment, Layer, Wire
from qtide.apps.colouring.graph import Graph, bits, components, everything, mask_of
from qtide.apps.colouring.reading import GraphError, Named, check_size
from qtide.backends.devices.profile import Profile
from qtide.core.errors import UsageError


@dataclass(frozen=True)
class GraphPartition:
    """A graph split into separators and parts, such that no edge joins two parts."""

    graph: Graph
    separators: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]

    def visits(self) -> dict[int, list[int]]:
        """For each separator, the parts whose fragments its wire visits."""
        home = {vertex: n for n, part in enumerate(self.parts) for vertex in part}
        found: dict[int, set[int]] = {separator: set() for separator in self.separators}
        for a, b in self.graph.edges:
            for one, other in ((a, b), (b, a)):
                if one in found and other in home:
                    found[one].add(home[other])
        for a, b in self.graph.edges:  # adjacent separators must share a part
            if a in found and b in found and not found[a] & found[b]:
                found[b].add(min(found[a] or found[b] or {0}))
                found[a].add(min(found[b]))
        return {separator: sorted(parts or {0}) for separator, parts in found.items()}

    def fragments(self, depth: int) -> tuple[Fragment, ...]:
        """Build the fragments of the circuit of that depth."""
        visits = self.visits()
        drafts = [_Draft(depth, part) for part in self.parts or ((),)]
        cuts = 0
        for separator in self.separators:
            cuts = _thread(drafts, separator, visits[separator], depth, cuts)
        for a, b in self.graph.edges:
            self._meeting(drafts, visits, a, b).join(a, b)
        return tuple(draft.fragment() for draft in drafts)

    def _meeting(
        self, drafts: list[_Draft], visits: dict[int, list[int]], a: int, b: int
    ) -> _Draft:
        """Return the draft in which an edge gets its phase."""
        if a in visits and b in visits:
            return drafts[min({*visits[a]} & {*visits[b]})]
        own = b if a in visits else a
        return next(draft for draft in drafts if own in draft.part)


@dataclass
class _Draft:
    """A fragment that is still being built."""

    depth: int
    part: tuple[int, ...]
    wires: list[Wire] = field(default_factory=list)
    at: list[dict[int, int]] = field(default_factory=list)
    """For each layer, the wire of each vertex."""
    vertices: list[list[int]] = field(default_factory=list)
    edges: list[list[tuple[int, int]]] = field(default_factory=list)
    mixed: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = range(len(self.part))
        self.wires = [Wire(vertex) for vertex in self.part]
        self.at = [dict(zip(self.part, own, strict=True)) for _ in range(self.depth)]
        self.vertices = [[*own] for _ in range(self.depth)]
        self.edges = [[] for _ in range(self.depth)]
        self.mixed = [[*own] for _ in range(self.depth)]

    def join(self, a: int, b: int) -> None:
        """Apply the phase of an edge here, in every layer."""
        for at, edges in zip(self.at, self.edges, strict=True):
            edges.append((at[a], at[b]))

    def fragment(self) -> Fragment:
        """Return the finished fragment."""
        layers = zip(self.vertices, self.edges, self.mixed, strict=True)
        return Fragment(
            tuple(self.wires),
            tuple(Layer(tuple(one), tuple(two), tuple(mixed)) for one, two, mixed in layers),
        )


def _thread(
    drafts: list[_Draft], separator: int, parts: Sequence[int], depth: int, cuts: int
) -> int:
    """Route a separator's wire through its parts; return the number of cuts so far."""
    before: _Draft | None = None
    wire = -1
    for layer in range(depth):
        order = parts if layer % 2 == 0 else parts[::-1]
        for part in order:
            draft = drafts[part]
            if before is not draft:
                enters = None
                if before is not None:
                    enters, cuts = cuts, cuts + 1
                    before.wires[wire] = Wire(separator, before.wires[wire].enters, enters)
                wire, before = len(draft.wires), draft
                draft.wires.append(Wire(separator, enters))
            draft.at[layer][separator] = wire
            if part == order[0]:
                draft.vertices[layer].append(wire)
            if part == order[-1]:
                draft.mixed[layer].append(wire)
    return cuts


@dataclass(frozen=True)
class CutBudget:
    """Upper limits on the cost of a cut circuit."""

    cuts: int = 6
    """Most cuts; the time to recombine the fragments grows as 4 to the power of the cuts."""
    circuits: int = 1000
    """Most circuits per evaluation; a device accepts no more in one payload."""


USUAL_BUDGET = CutBudget()


@dataclass(frozen=True)
class Overhead:
    """Cost of one evaluation of the cut circuit."""

    fragments: int
    cuts: int
    circuits: int
    sampling: int
    """Approximate factor on the shots for the same error as that of the uncut circuit."""
    seconds: float | None
    """Expected seconds on a device; None if its timing is unknown."""

    def __str__(self) -> str:
        expected = "" if self.seconds is None else f", {self.seconds:.3g} s expected"
        return (
            f"{_several(self.cuts, 'cut')}, {_several(self.fragments, 'fragment')}, "
            f"{_several(self.circuits, 'circuit')} per evaluation, "
            f"sampling overhead {self.sampling:,}{expected}"
        )


@dataclass(frozen=True)
class CutPlan:
    """A partition and its fragments."""

    partition: GraphPartition
    depth: int

    @cached_property
    def fragments(self) -> tuple[Fragment, ...]:
        """The fragments of the cut circuit."""
        return self.partition.fragments(self.depth)

    @cached_property
    def cuts(self) -> int:
        """Number of cuts."""
        return sum(len(fragment.leaving) for fragment in self.fragments)

    @cached_property
    def circuits(self) -> int:
        """Number of circuits per evaluation."""
        return sum(fragment.circuits for fragment in self.fragments)

    @cached_property
    def qubits(self) -> int:
        """Number of qubits of the largest fragment."""
        return max(len(fragment.wires) for fragment in self.fragments)

    def overhead(self, profile: Profile | None, shots: int) -> Overhead:
        """Cost of an evaluation with that many shots per circuit on a device."""
        seconds = profile.payload_s + profile.shot_s * shots * self.circuits if profile else None
        factor = SAMPLING_OVERHEAD**self.cuts
        return Overhead(len(self.fragments), self.cuts, self.circuits, factor, seconds)


MOST_SEPARATORS = 3
MOST_TRIALS = 20_000
"""Most sets of separators examined for each number of separators: about a second."""


@lru_cache(maxsize=1024)
def plan_cuts(
    graph: Graph, qubits: int, depth: int = 1, budget: CutBudget = USUAL_BUDGET
) -> CutPlan:
    """Find the plan with the fewest circuits for a device; refuse one that exceeds the budget."""
    best: CutPlan | None = None
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


def _price(plan: CutPlan) -> tuple[int, int, int]:
    return plan.circuits, plan.cuts, plan.qubits


def _within(plan: CutPlan, budget: CutBudget) -> bool:
    return plan.cuts <= budget.cuts and plan.circuits <= budget.circuits


def _plans(graph: Graph, separators: int, qubits: int, depth: int) -> Iterator[CutPlan]:
    """Yield the plans with that many separators whose fragments fit the device."""
    for chosen in islice(combinations(range(graph.size), separators), MOST_TRIALS):
        parts = _packed(graph, chosen, qubits, depth)
        if parts is not None:
            plan = CutPlan(GraphPartition(graph, chosen, parts), depth)
            if plan.qubits <= qubits:
                yield plan


def _packed(
    graph: Graph, separators: tuple[int, ...], qubits: int, depth: int
) -> tuple[tuple[int, ...], ...] | None:
    """Remove the separators and pack the components into few parts, largest component first."""
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
    # The first two parts go to the ends, where wires are cut on one side only.
    ordered = [*packed[:1], *packed[2:], *packed[1:2]]
    return tuple(tuple(bits(part)) for part in ordered)


def _need(graph: Graph, separators: int, part: int, pieces: int) -> int:
    """Qubits of a part, with `pieces` wire pieces of each adjacent separator."""
    beside = 0
    for vertex in bits(part):
        beside |= graph.neighbours[vertex] & separators
    return part.bit_count() + pieces * beside.bit_count()


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


DENSITY = 0.5
"""Share of possible edges within a cluster, in addition to the tree that connects it."""


def clustered(separators: int, largest: int, vertices: int, seed: int) -> Named:
    """Generate a random connected clustered graph; the separating vertices come first."""
    source = f"clustered({separators},{largest},{vertices})"
    check_size(vertices, source)
    if not 1 <= separators < vertices or largest < 1:
        raise GraphError(
            f"--clustered {separators},{largest},{vertices}: give K, d and n with"
            " 1 <= K < n and d >= 1, as in 1,4,9."
        )
    chance = random.Random(f"{source} {seed}")
    pairs = set(zip(range(separators - 1), range(1, separators), strict=True))
    for first in range(separators, vertices, largest):
        members = range(first, min(first + largest, vertices))
        pairs |= _cluster(members, chance) | _links(separators, members, chance)
    return Named(Graph.of(vertices, pairs), tuple(map(str, range(vertices))), source)


def _cluster(members: range, chance: random.Random) -> set[tuple[int, int]]:
    """Edges of a cluster: a random tree, and about half of the other pairs."""
    tree = {(chance.randrange(members.start, each), each) for each in members[1:]}
    return tree | {pair for pair in combinations(members, 2) if chance.random() < DENSITY}


def _links(separators: int, members: range, chance: random.Random) -> set[tuple[int, int]]:
    """Edges that link each separating vertex to one or more members of the cluster."""
    return {
        (each, member)
        for each in range(separators)
        for member in chance.sample(members, chance.randint(1, len(members)))
    }
