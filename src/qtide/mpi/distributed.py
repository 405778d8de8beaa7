"""An array whose rows are spread over the ranks of a job and move when its size changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from qtide.core.errors import UsageError
from qtide.mpi.communicator import Communicator
from qtide.mpi.library import library

Rows = np.ndarray[Any, np.dtype[np.int64]]
Array = np.ndarray[Any, Any]


class Distributed:
    """An array distributed by rows; this rank holds the rows numbered `rows` in `local`."""

    def __init__(
        self, shape: tuple[int, ...], dtype: Any = float, block: int | None = None
    ) -> None:
        if not isinstance(shape, tuple) or not shape or not all(map(_is_count, shape)):
            raise UsageError(
                "the shape of a distributed array is a tuple of whole numbers, as (1000,), not "
                f"{shape!r}"
            )
        if block is not None and not (_is_count(block) and block > 0):
            raise UsageError(f"the block of a distributed array is some rows, not {block!r}")
        self.shape = tuple(map(int, shape))
        self.dtype = np.dtype(dtype)
        if self.dtype.hasobject:
            raise UsageError(
                "a distributed array has numbers, not Python objects; keep those in job.state"
            )
        self.layout = BlockLayout(shape[0], block)
        self.rank, self.size = 0, 0
        self.local: Array = np.empty((0, *shape[1:]), dtype=self.dtype)

    @property
    def terms(self) -> tuple[Any, ...]:
        """The constructor arguments that create the same array without its rows."""
        return self.shape, self.dtype, self.layout.block

    @property
    def nbytes(self) -> int:
        """The size of the whole array in bytes."""
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))

    @property
    def rows(self) -> Rows:
        """The global numbers of this rank's rows, in the order of `local`."""
        return self.layout.owned(self.rank, self.size)

    @property
    def first(self) -> int:
        """The global number of this rank's first row, if each rank has one block."""
        return self.layout.span(self.rank, self.size)[0]

    def place(self, rank: int, size: int, local: Array) -> None:
        """Replace this rank's rows."""
        self.rank, self.size, self.local = rank, size, local

    def fill(self, rank: int, size: int, fill: Callable[[Rows], Any] | None) -> None:
        """Initialise this rank's rows: zeros, or what `fill` returns for their numbers."""
        self.place(
            rank, size, np.zeros((self.layout.count(rank, size), *self.shape[1:]), self.dtype)
        )
        if fill is not None:
            self.local[...] = fill(self.rows)

    def move(self, comm: Communicator, old: int, new: int) -> Array:
        """Return this rank's rows for `new` instead of `old` ranks, without changing the array."""
        return move(comm, self.layout, np.ascontiguousarray(self.local, self.dtype), old, new)

    def gathered(self, comm: Communicator, root: int = 0) -> Array | None:
        """Return the whole array on the root, and None elsewhere."""
        parts = comm.gather((self.rows, self.local), root)
        if parts is None:
            return None
        whole = np.empty(self.shape, self.dtype)
        for rows, local in parts:
            whole[rows] = local
        return whole


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and int(value) >= 0


@dataclass(frozen=True)
class BlockLayout:
    """One contiguous block of rows per rank or, with `block`, blocks of that size in turn.

    Without `block`, the row counts of any two ranks differ by at most one.
    """

    rows: int
    block: int | None = None

    def owned(self, rank: int, size: int) -> Rows:
        """Return the row numbers of a rank in ascending order."""
        if self.block is None:
            return np.arange(*self.span(rank, size))
        if rank >= size:
            return np.empty(0, dtype=np.int64)
        starts = np.arange(rank * self.block, self.rows, self.block * size)
        rows = (starts[:, None] + np.arange(self.block)).ravel()
        return rows[rows < self.rows]

    def owners(self, rows: Rows, size: int) -> Rows:
        """Return the rank that holds each of these rows."""
        if self.block is None:
            ends = [self.span(rank, size)[1] for rank in range(size)]
            return np.searchsorted(ends, rows, side="right")
        return (rows // self.block) % size

    def span(self, rank: int, size: int) -> tuple[int, int]:
        """Return the half-open row range of a rank, if each rank has one block."""
        if rank >= size:
            return self.rows, self.rows
        least, more = divmod(self.rows, size)
        first = rank * least + min(rank, more)
        return first, first + least + (rank < more)

    def count(self, rank: int, size: int) -> int:
        """Return how many rows a rank has."""
        if self.block is None:
            first, last = self.span(rank, size)
            return last - first
        return len(self.owned(rank, size))


@dataclass(frozen=True)
class Share:
    """How many rows a rank exchanges with each rank, and the order that groups them by rank."""

    counts: Rows
    order: Rows | None = None
    """None if the rows are already in the order of the ranks."""


def move(comm: Communicator, layout: BlockLayout, local: Array, old: int, new: int) -> Array:
    """Return this rank's rows for `new` ranks; all ranks of `comm`, old and new, must call it."""
    rank = comm.rank
    out, into = share(layout, rank, old, new, comm.size), share(layout, rank, new, old, comm.size)
    send = local if out.order is None else local[out.order]
    received = np.empty((layout.count(rank, new), *local.shape[1:]), dtype=local.dtype)
    # no rank has more rows than rank 0, so no two ranks exchange more than this
    most = min(layout.count(0, old), layout.count(0, new))
    _exchange(comm, most, (send, out.counts), (received, into.counts))
    if into.order is None:
        return received
    result = np.empty_like(received)
    result[into.order] = received
    return result


def share(layout: BlockLayout, rank: int, here: int, there: int, ranks: int) -> Share:
    """Rows that a rank of a `here`-rank layout exchanges with each rank of a `there`-rank one."""
    if layout.block is None:
        first, last = layout.span(rank, here)
        spans = [layout.span(other, there) for other in range(ranks)]
        return Share(np.array([max(0, min(last, e) - max(first, b)) for b, e in spans]))
    owners = layout.owners(layout.owned(rank, here), there)
    return Share(np.bincount(owners, minlength=ranks), np.argsort(owners, kind="stable"))


PIECE = 2**28
"""The most bytes that one rank sends to another per collective: well below MPI's 2 GB limit."""


def _exchange(
    comm: Communicator, most: int, send: tuple[Array, Rows], received: tuple[Array, Rows]
) -> None:
    received[0][_own(received[1], comm.rank)] = send[0][_own(send[1], comm.rank)]
    width = send[0].dtype.itemsize * int(np.prod(send[0].shape[1:], dtype=np.int64))
    piece = max(1, PIECE // max(1, width))
    for done in range(0, most, piece):
        parts = [_part(*each, comm.rank, done, piece, width) for each in (send, received)]
        comm.Ialltoallv(*parts).Wait()  # not copied: nobody uses the new array if it is given up


def _own(counts: Rows, rank: int) -> slice:
    """The rows that a rank keeps; they are copied without MPI."""
    first = int(counts[:rank].sum())
    return slice(first, first + int(counts[rank]))


def _part(data: Array, counts: Rows, rank: int, done: int, piece: int, width: int) -> list[Any]:
    """The rows of one collective as mpi4py expects them: buffer, counts and offsets, type."""
    now = np.clip(counts - done, 0, piece)
    now[rank] = 0
    starts = np.cumsum(counts) - counts + np.minimum(done, counts)
    buffer = data.reshape(-1).view(np.uint8) if data.size else np.empty(0, dtype=np.uint8)
    return [buffer, (now * width, starts * width), library().MPI.BYTE]
