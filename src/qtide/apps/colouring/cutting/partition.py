"""A partition: separator vertices, and the parts that fall apart without them.

Each part becomes a fragment. The wire of a separator visits the fragments of its neighbours one
after the other, and is cut in between. In every other layer it visits them in reverse order: so the
last fragment of a layer is the first of the next, and needs no cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qtide.apps.colouring.cutting.fragment import Fragment, Layer, Wire
from qtide.apps.colouring.graph import Graph


@dataclass(frozen=True)
class Partition:
    """Every vertex is a separator or in one part; no edge joins two parts."""

    graph: Graph
    separators: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]

    def visits(self) -> dict[int, list[int]]:
        """For each separator the parts whose fragments its wire visits."""
        home = {vertex: n for n, part in enumerate(self.parts) for vertex in part}
        found: dict[int, set[int]] = {separator: set() for separator in self.separators}
        for a, b in self.graph.edges:
            for one, other in ((a, b), (b, a)):
                if one in found and other in home:
                    found[one].add(home[other])
        for a, b in self.graph.edges:  # two separators have to meet somewhere
            if a in found and b in found and not found[a] & found[b]:
                found[b].add(min(found[a] or found[b] or {0}))
                found[a].add(min(found[b]))
        return {separator: sorted(parts or {0}) for separator, parts in found.items()}

    def fragments(self, depth: int) -> tuple[Fragment, ...]:
        """The fragments of the circuit of that depth."""
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
        """Where an edge gets its phase."""
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
    """For each layer the wire of each vertex."""
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
        """Let an edge have its phase here, in every layer."""
        for at, edges in zip(self.at, self.edges, strict=True):
            edges.append((at[a], at[b]))

    def fragment(self) -> Fragment:
        """What was built."""
        layers = zip(self.vertices, self.edges, self.mixed, strict=True)
        return Fragment(
            tuple(self.wires),
            tuple(Layer(tuple(one), tuple(two), tuple(mixed)) for one, two, mixed in layers),
        )


def _thread(
    drafts: list[_Draft], separator: int, parts: Sequence[int], depth: int, cuts: int
) -> int:
    """Lead a separator's wire through its parts; give the number of cuts so far."""
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
