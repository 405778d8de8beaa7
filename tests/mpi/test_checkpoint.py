"""Checkpoints: written by any number of ranks, read by any other number."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.mpi.checkpoint import Checkpoint
from qtide.mpi.distributed import Distributed

ARRAYS = st.tuples(st.integers(1, 40), st.none() | st.integers(1, 7))


@settings(max_examples=20, deadline=None)
@given(ARRAYS, st.integers(1, 6), st.integers(1, 6))
def test_what_some_ranks_write_others_read(
    terms: tuple[int, int | None], before: int, after: int
) -> None:
    rows, block = terms
    with TemporaryDirectory() as folder:
        checkpoint = Checkpoint(Path(folder), 1)
        checkpoint.path.mkdir()
        for rank in range(before):
            array = Distributed((rows, 2), np.int64, block)
            array.fill(rank, before, lambda numbers: numbers[:, None] * [1, 10])
            checkpoint.write_rows("x", array)
        for rank in range(after):
            array = Distributed((rows, 2), np.int64, block)
            checkpoint.read_rows("x", array, rank, after)
            assert (array.local == array.rows[:, None] * [1, 10]).all()
            assert (array.rank, array.size) == (rank, after)


def test_a_version_counts_once_its_manifest_is_there(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, 4)
    checkpoint.path.mkdir()
    checkpoint.write_manifest(("state", {"x": (3,)}))
    assert [file.name for file in checkpoint.path.iterdir()] == ["manifest"]
    assert checkpoint.read_manifest() == ("state", {"x": (3,)})
    checkpoint.remove()
    checkpoint.remove()
    assert list(tmp_path.iterdir()) == []
