"""A fragment: the part of a cut QAOA circuit that runs on the device by itself.

A cut wire leaves one fragment, where it is measured in three bases, and enters another one, where
it is prepared in four states. No outcome has to travel between them while they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.cutting.paulis import BASES, PREPARATIONS


@dataclass(frozen=True)
class Wire:
    """A qubit of a fragment: a vertex, or the piece of its wire between two cuts."""

    vertex: int
    enters: int | None = None
    """The number of the cut it begins at; None if it begins as the circuit does."""
    leaves: int | None = None
    """The number of the cut it ends at; None if it is measured as the circuit's own."""


@dataclass(frozen=True)
class Layer:
    """What one layer of QAOA does in a fragment; wires are named by their place in it."""

    vertices: tuple[int, ...]
    """The wires that get the phase of a vertex."""
    edges: tuple[tuple[int, int], ...]
    """The pairs that get the phase of an edge."""
    mixed: tuple[int, ...]
    """The wires that are mixed."""


@dataclass(frozen=True)
class Fragment:
    """Wires and layers; the same for all angles."""

    wires: tuple[Wire, ...]
    layers: tuple[Layer, ...]

    @cached_property
    def entering(self) -> tuple[int, ...]:
        """The wires that begin at a cut."""
        return tuple(n for n, wire in enumerate(self.wires) if wire.enters is not None)

    @cached_property
    def leaving(self) -> tuple[int, ...]:
        """The wires that end at a cut."""
        return tuple(n for n, wire in enumerate(self.wires) if wire.leaves is not None)

    @cached_property
    def final(self) -> tuple[int, ...]:
        """The wires whose measured bit is a vertex of the answer."""
        return tuple(n for n, wire in enumerate(self.wires) if wire.leaves is None)

    @property
    def cuts(self) -> tuple[int, ...]:
        """The cuts at which wires enter, then those at which wires leave."""
        enters = [self.wires[n].enters for n in self.entering]
        leaves = [self.wires[n].leaves for n in self.leaving]
        return tuple(cut for cut in enters + leaves if cut is not None)

    @property
    def circuits(self) -> int:
        """How many circuits it takes: each preparation with each basis."""
        count: int = len(PREPARATIONS) ** len(self.entering) * len(BASES) ** len(self.leaving)
        return count

    def costs(self, penalty: int) -> NDArray[np.int32]:
        """For each layer, the cost whose phase each bit string gets."""
        bits = self.bits
        rows = [
            penalty * sum((bits[a] & bits[b] for a, b in layer.edges), np.zeros_like(bits[0]))
            - sum((bits[n] for n in layer.vertices), np.zeros_like(bits[0]))
            for layer in self.layers
        ]
        return np.array(rows, dtype=np.int32)

    @cached_property
    def bits(self) -> NDArray[np.int64]:
        """For each wire, its bit in every bit string."""
        strings = np.arange(1 << len(self.wires))
        return np.stack([strings >> n & 1 for n in range(len(self.wires))])
