"""Which rank has which rows: all of them, each once, on every number of ranks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.core.errors import UsageError
from qtide.mpi.distributed import BlockLayout, Distributed, share

LAYOUTS = st.builds(BlockLayout, st.integers(1, 200), st.none() | st.integers(1, 20))
SIZES = st.integers(1, 9)


@given(LAYOUTS, SIZES)
def test_every_row_has_one_owner(layout: BlockLayout, size: int) -> None:
    owned = [layout.owned(rank, size) for rank in range(size)]
    assert sorted(np.concatenate(owned).tolist()) == list(range(layout.rows))
    for rank, rows in enumerate(owned):
        assert (layout.owners(rows, size) == rank).all()
        assert len(rows) == layout.count(rank, size)


@given(st.integers(0, 200), SIZES)
def test_the_ranks_have_equally_many_rows_but_for_one(rows: int, size: int) -> None:
    counts = [BlockLayout(rows).count(rank, size) for rank in range(size)]
    assert sum(counts) == rows
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("dtype", [object, [("name", object)]])
def test_python_objects_are_refused(dtype: Any) -> None:
    with pytest.raises(UsageError, match="keep those in job"):
        Distributed((3,), dtype)


@pytest.mark.parametrize("shape", [5, (), (-1,), (2.5,), [3]])
def test_a_shape_that_is_none_is_refused(shape: Any) -> None:
    with pytest.raises(UsageError, match="is a tuple of whole numbers, as"):
        Distributed(shape)
    with pytest.raises(UsageError, match="is some rows, not 0"):
        Distributed((3,), block=0)


@given(LAYOUTS, SIZES, SIZES)
def test_a_move_brings_every_row_to_its_new_owner(layout: BlockLayout, old: int, new: int) -> None:
    ranks = max(old, new)
    boxes: dict[tuple[int, int], list[int]] = {}
    for rank in range(ranks):
        out = share(layout, rank, old, new, ranks)
        rows = layout.owned(rank, old)
        ordered = rows if out.order is None else rows[out.order]
        assert out.counts.max() <= min(layout.count(0, old), layout.count(0, new))
        parts = np.split(ordered, np.cumsum(out.counts)[:-1])
        boxes |= {(rank, to): part.tolist() for to, part in enumerate(parts)}
    for rank in range(ranks):
        into = share(layout, rank, new, old, ranks)
        received = [row for other in range(ranks) for row in boxes[other, rank]]
        assert [len(boxes[other, rank]) for other in range(ranks)] == into.counts.tolist()
        placed = np.empty(len(received), dtype=int)
        placed[slice(None) if into.order is None else into.order] = received
        assert placed.tolist() == layout.owned(rank, new).tolist()
