"""Which rank has which rows of an array: in one block each, or in turns of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Layout:
    """`rows` rows: one block for each rank or, if `block` is given, blocks of so many in turns."""

    rows: int
    block: int | None = None

    def width(self, size: int) -> int:
        """The rows of one block on so many ranks."""
        return self.block or max(1, -(-self.rows // size))

    def owned(self, rank: int, size: int) -> Rows:
        """The rows of a rank, in ascending order."""
        width = self.width(size)
        starts = np.arange(rank * width, self.rows, width * size)
        if rank >= size:
            return np.empty(0, dtype=np.int64)
        rows = (starts[:, None] + np.arange(width)).ravel()
        return rows[rows < self.rows]

    def owners(self, rows: Rows, size: int) -> Rows:
        """The ranks that have these rows."""
        return (rows // self.width(size)) % size

    def span(self, rank: int, size: int) -> tuple[int, int]:
        """The rows of a rank that has one block: the first, and the one after the last."""
        width = self.width(size)
        if rank >= size:
            return self.rows, self.rows
        return min(rank * width, self.rows), min((rank + 1) * width, self.rows)

    def count(self, rank: int, size: int) -> int:
        """How many rows a rank has."""
        if self.block is None:
            first, last = self.span(rank, size)
            return last - first
        return len(self.owned(rank, size))
