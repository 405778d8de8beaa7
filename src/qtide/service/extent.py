"""The extent of a task: what the time that it takes may be learnt by."""

from __future__ import annotations

from typing import NamedTuple


class Extent(NamedTuple):
    """The size of a task, in powers of two, but for the qubits."""

    bytes: int
    shots: int
    qubits: int
    circuits: int

    @staticmethod
    def of(data: int, shots: int, qubits: int, circuits: int) -> Extent:
        """The extent of a payload of so many bytes."""
        return Extent(data.bit_length(), shots.bit_length(), qubits, circuits.bit_length())

    def beyond(self, other: Extent) -> int:
        """By how many powers of two it should take longer than another."""
        return self.bytes - other.bytes + self.shots - other.shots + self.qubits - other.qubits

    def distance(self, other: Extent) -> int:
        """How different two are."""
        return sum(abs(mine - its) for mine, its in zip(self, other, strict=True))
