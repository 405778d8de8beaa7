"""Moving the rows of an array from one number of ranks to another, by collectives in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qtide.malleable.layout import Layout, Rows
from qtide.mpi.communicator import Communicator
from qtide.mpi.library import library

PIECE = 2**28
"""The most bytes that one rank sends to another in one collective: well below MPI's 2 GB."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Share:
    """How many rows a rank exchanges with each other rank, and in which order it has them."""

    counts: Rows
    order: Rows | None = None
    """None if the rows are in the order of the ranks already."""


def moved(comm: Communicator, layout: Layout, local: Array, old: int, new: int) -> Array:
    """This rank's rows on `new` ranks; all ranks of `comm`, old and new ones, call it."""
    rank = comm.rank
    out, into = share(layout, rank, old, new, comm.size), share(layout, rank, new, old, comm.size)
    send = local if out.order is None else local[out.order]
    received = np.empty((layout.count(rank, new), *local.shape[1:]), dtype=local.dtype)
    # nobody has more rows than the first rank, so no two exchange more than this
    most = min(layout.count(0, old), layout.count(0, new))
    _exchange(comm, most, (send, out.counts), (received, into.counts))
    if into.order is None:
        return received
    result = np.empty_like(received)
    result[into.order] = received
    return result


def share(layout: Layout, rank: int, here: int, there: int, ranks: int) -> Share:
    """What a rank that has rows on `here` ranks exchanges with `there` ranks."""
    if layout.block is None:
        first, last = layout.span(rank, here)
        spans = [layout.span(other, there) for other in range(ranks)]
        return Share(np.array([max(0, min(last, e) - max(first, b)) for b, e in spans]))
    owners = layout.owners(layout.owned(rank, here), there)
    return Share(np.bincount(owners, minlength=ranks), np.argsort(owners, kind="stable"))


def _exchange(
    comm: Communicator, most: int, send: tuple[Array, Rows], received: tuple[Array, Rows]
) -> None:
    received[0][_own(received[1], comm.rank)] = send[0][_own(send[1], comm.rank)]
    width = send[0].dtype.itemsize * int(np.prod(send[0].shape[1:], dtype=np.int64))
    piece = max(1, PIECE // max(1, width))
    for done in range(0, most, piece):
        parts = [_part(*each, comm.rank, done, piece, width) for each in (send, received)]
        comm.complete(comm.raw.Ialltoallv(*parts), eager=True)


def _own(counts: Rows, rank: int) -> slice:
    """The rows that a rank keeps: they are copied, without MPI."""
    first = int(counts[:rank].sum())
    return slice(first, first + int(counts[rank]))


def _part(data: Array, counts: Rows, rank: int, done: int, piece: int, width: int) -> list[Any]:
    """The rows of one collective, as mpi4py takes them: bytes, how many, and from where."""
    now = np.clip(counts - done, 0, piece)
    now[rank] = 0
    starts = np.cumsum(counts) - counts + np.minimum(done, counts)
    buffer = data.reshape(-1).view(np.uint8) if data.size else np.empty(0, dtype=np.uint8)
    return [buffer, (now * width, starts * width), library().MPI.BYTE]
