"""A Slurm for the duration of a benchmark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qtide import box


@contextmanager
def put_up(release: str | None = None) -> Iterator[Path]:
    """A box with three nodes, perhaps of another release; yields its configuration."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    try:
        yield Path(box.env(box.up(folder, nodes=3, release=release).folder)["SLURM_CONF"])
    finally:
        box.down(folder)
