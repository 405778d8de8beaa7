"""A chip: its named qubits and the connections between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from qtide.core.errors import UsageError

NATIVE = {"r": (1, 2), "rx": (1, 1), "ry": (1, 1), "x": (1, 0), "y": (1, 0), "cz": (2, 0)}
"""The gates that IQM's clients convert to `prx` and `cz`."""

OPERATIONS = ("prx", "cc_prx", "cz", "measure", "reset", "barrier", "delay")
"""IQM's names of the operations that every gate device takes."""

ONE = {
    **dict.fromkeys(("x", "y", "z", "h", "s", "sdg", "t", "tdg", "sx", "sxdg"), (1, 0)),
    **dict.fromkeys(("p", "rx", "ry", "rz", "u1"), (1, 1)),
    **dict.fromkeys(("r", "u2"), (1, 2)),
    **dict.fromkeys(("u", "u3"), (1, 3)),
}

TWO = {
    **dict.fromkeys(("cx", "cy", "cz", "swap", "ecr"), (2, 0)),
    **dict.fromkeys(("cp", "crx", "cry", "crz", "rxx", "ryy", "rzz", "rzx"), (2, 1)),
    "cu": (2, 4),
}

NOISELESS = ("crx", "cry", "crz", "cu")
"""Gates of `TWO` that the emulator does not have if there is noise."""

THREE = {"ccx": (3, 0), "ccz": (3, 0), "cswap": (3, 0)}

ALWAYS = {"id": (1, 0), "reset": (1, 0), "measure": (1, 0)}
"""Operations that every gate device takes, besides barriers, delays and `if_else`."""


@dataclass(frozen=True)
class Chip:
    """Qubits and connections; IQM circuits refer to qubits by name, Qiskit's by index."""

    qubits: tuple[str, ...]
    connections: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, qubits: int, connections: Sequence[Sequence[int]] | None = None) -> Chip:
        """A chip with qubits QB1, QB2 and so on, fully connected unless connections are given."""
        names = tuple(f"QB{number}" for number in range(1, qubits + 1))
        if connections is None:
            return cls(names, tuple(combinations(range(qubits), 2)))
        return cls(names, tuple(_pair(pair, qubits) for pair in connections))

    @cached_property
    def place(self) -> dict[str, int]:
        """The index of each qubit by name."""
        return {name: number for number, name in enumerate(self.qubits)}

    @cached_property
    def complete(self) -> bool:
        """Whether every qubit is connected to every other."""
        return len(self._pairs) == len(self.qubits) * (len(self.qubits) - 1) // 2

    def connects(self, qubits: Sequence[int]) -> bool:
        """Whether a gate can act on these qubits together."""
        return self.complete or len(qubits) < 2 or frozenset(qubits) in self._pairs

    @cached_property
    def _pairs(self) -> frozenset[frozenset[int]]:
        return frozenset(frozenset(pair) for pair in self.connections)


def _pair(pair: Sequence[int], qubits: int) -> tuple[int, int]:
    match pair:
        case [int(first), int(second)] if first != second and {first, second} <= {*range(qubits)}:
            return first, second
    raise UsageError(f"a connection is a pair of the qubits 0 to {qubits - 1}, not {pair!r}")


def expected_fidelity(circuit: Any, qubits: Sequence[str], metrics: Mapping[str, float]) -> float:
    """The product of the fidelities of all operations of a Qiskit circuit, as they are measured.

    `qubits` are those of the chip on which the circuit's own are. `metrics` has the fidelities by
    IQM's names; what it does not have counts as perfect. Both branches of a condition count, as
    either may run.
    """
    found = 1.0
    for each in circuit.data:
        names = [qubits[circuit.find_bit(qubit).index] for qubit in each.qubits]
        if each.name == "measure":
            found *= metrics.get(f"metrics.ssro.measure.default.{names[0]}.fidelity", 1.0)
        elif each.name == "if_else":
            blocks = each.operation.blocks
            found *= math.prod(expected_fidelity(block, names, metrics) for block in blocks)
        elif each.name in ("barrier", "delay", "reset", "id"):
            continue
        elif len(names) == 1:
            found *= metrics.get(f"metrics.rb.prx.default.{names[0]}.fidelity", 1.0)
        elif len(names) == 2:
            pairs = ("__".join(names), "__".join(reversed(names)))
            known = (metrics.get(f"metrics.irb.cz.default.{pair}.fidelity") for pair in pairs)
            found *= next((value for value in known if value is not None), 1.0)
    return found


STAR = Chip.of(5, [(0, 2), (1, 2), (2, 3), (2, 4)])
"""Five qubits with the third at the centre, like IQM's Adonis."""
