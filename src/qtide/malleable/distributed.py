"""An array whose rows are spread over the ranks of a job, and follow its changes of size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qtide.malleable.layout import Layout, Rows
from qtide.malleable.move import Array, moved
from qtide.mpi.communicator import Communicator


class Distributed:
    """The rows of this rank are in `local`, their numbers in `rows`."""

    def __init__(
        self, shape: tuple[int, ...], dtype: Any = float, block: int | None = None
    ) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.layout = Layout(shape[0], block)
        self.rank, self.size = 0, 0
        self.local: Array = np.empty((0, *shape[1:]), dtype=self.dtype)

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array."""
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))

    @property
    def rows(self) -> Rows:
        """The numbers of the rows of this rank, in the order of `local`."""
        return self.layout.owned(self.rank, self.size)

    @property
    def first(self) -> int:
        """The number of this rank's first row, if each rank has one block."""
        return self.layout.span(self.rank, self.size)[0]

    def place(self, rank: int, size: int, local: Array) -> None:
        """From now on, this is what the rank has."""
        self.rank, self.size, self.local = rank, size, local

    def filled(self, rank: int, size: int, fill: Callable[[Rows], Any] | None) -> None:
        """Give this rank its rows for the first time: zeros, or what `fill` makes of them."""
        self.place(
            rank, size, np.zeros((self.layout.count(rank, size), *self.shape[1:]), self.dtype)
        )
        if fill is not None:
            self.local[...] = fill(self.rows)

    def moved(self, comm: Communicator, old: int, new: int) -> Array:
        """This rank's rows on another number of ranks; nothing is changed yet."""
        return moved(comm, self.layout, np.ascontiguousarray(self.local, self.dtype), old, new)

    def gathered(self, comm: Communicator, root: int = 0) -> Array | None:
        """The whole array, on the root."""
        parts = comm.gather((self.rows, self.local), root)
        if parts is None:
            return None
        whole = np.empty(self.shape, self.dtype)
        for rows, local in parts:
            whole[rows] = local
        return whole
