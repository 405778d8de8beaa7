"""What a gate device answers: the shots of a circuit in a compact form, or expectation values.

Bits are in Qiskit's order: bit 0 is the lowest bit of the first register.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Shots:
    """The registers with their widths, and the bits of each shot, padded to whole bytes."""

    registers: tuple[tuple[str, int], ...]
    data: bytes

    def __post_init__(self) -> None:
        if not self.registers or any(width < 1 for _, width in self.registers):
            raise ValueError("there has to be a register, and each needs at least one bit")
        if len(dict(self.registers)) < len(self.registers):
            raise ValueError("two registers have the same name")
        if len(self.data) % self._size or self._stray_bits:
            raise ValueError("the bytes do not fit the registers")

    @classmethod
    def of(cls, registers: Iterable[tuple[str, int]], values: Iterable[int]) -> Shots:
        """Create shots from one number each; its bit 0 is the lowest bit of the first register."""
        registers = tuple(registers)
        size = _bytes_for(registers)
        return cls(registers, b"".join([value.to_bytes(size, "little") for value in values]))

    def __len__(self) -> int:
        return len(self.data) // self._size

    def first(self, share: float) -> Shots:
        """The first shots, as a share of all, rounded down."""
        return Shots(self.registers, self.data[: int(share * len(self)) * self._size])

    @property
    def values(self) -> list[int]:
        """One number per shot, as `of` takes them."""
        return [int.from_bytes(chunk, "little") for chunk in self._chunks()]

    def counts(self) -> dict[str, int]:
        """How often each bit string was measured, formatted like Qiskit's `get_counts`."""
        often = Counter(self._chunks())
        return {self._bit_string(int.from_bytes(key, "little")): n for key, n in often.items()}

    def rows(self, register: str) -> list[list[int]]:
        """The register's bits, one row per shot, lowest bit first."""
        low, width = self._place(register)
        rows: dict[bytes, list[int]] = {}
        answer = []
        for chunk in self._chunks():
            if chunk not in rows:
                value = int.from_bytes(chunk, "little") >> low
                rows[chunk] = [value >> bit & 1 for bit in range(width)]
            answer.append(rows[chunk].copy())
        return answer

    def to_json(self) -> dict[str, Any]:
        """Convert to a value that JSON can represent."""
        registers = [[name, width] for name, width in self.registers]
        return {"registers": registers, "bits": b64encode(self.data).decode()}

    @classmethod
    def from_json(cls, form: dict[str, Any]) -> Shots:
        """Restore shots from `to_json`; raises ValueError, TypeError or KeyError if malformed."""
        registers = tuple((str(name), int(width)) for name, width in form["registers"])
        return cls(registers, b64decode(form["bits"], validate=True))

    def _chunks(self) -> list[bytes]:
        size = self._size
        return [self.data[at : at + size] for at in range(0, len(self.data), size)]

    def _place(self, register: str) -> tuple[int, int]:
        low = 0
        for name, width in self.registers:
            if name == register:
                return low, width
            low += width
        raise KeyError(register)

    def _bit_string(self, value: int) -> str:
        """Format a shot: last register first, highest bit of each register first."""
        parts = []
        for _, width in self.registers:
            parts.append(format(value & (1 << width) - 1, f"0{width}b"))
            value >>= width
        return " ".join(reversed(parts))

    @cached_property
    def _size(self) -> int:
        return _bytes_for(self.registers)

    @property
    def _stray_bits(self) -> bool:
        """Whether a shot's last byte has bits set beyond the registers."""
        spare = self._size * 8 - sum(width for _, width in self.registers)
        last = self.data[self._size - 1 :: self._size]
        return bool(last) and max(last) >> (8 - spare) > 0


def _bytes_for(registers: Iterable[tuple[str, int]]) -> int:
    return (sum(width for _, width in registers) + 7) // 8


@dataclass(frozen=True, eq=False)
class Estimates:
    """The expectation values of one PUB with their standard errors, in the shape of the PUB."""

    evs: NDArray[np.float64]
    stds: NDArray[np.float64]
    circuits: int
    """How many circuits were run for them."""

    def to_json(self) -> dict[str, Any]:
        """Convert to a value that JSON can represent."""
        evs, stds = (b64encode(each.astype("<f8").tobytes()) for each in (self.evs, self.stds))
        shape = list(self.evs.shape)
        words = {"evs": evs.decode(), "stds": stds.decode()}
        return {"shape": shape, "circuits": self.circuits} | words

    @classmethod
    def from_json(cls, form: dict[str, Any]) -> Estimates:
        """Restore estimates from `to_json`; raises ValueError, TypeError or KeyError."""
        import numpy as np  # only estimators need it, and it is slow to import

        shape = tuple(int(each) for each in form["shape"])
        arrays = [np.frombuffer(b64decode(form[each], validate=True), "<f8") for each in _ARRAYS]
        if any(len(each) != prod(shape) for each in arrays):
            raise ValueError("the values do not fit the shape")
        return cls(arrays[0].reshape(shape), arrays[1].reshape(shape), int(form["circuits"]))


_ARRAYS = ("evs", "stds")
