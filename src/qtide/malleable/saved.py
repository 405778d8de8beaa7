"""What a job has saved on a file system that all nodes share: state, and arrays row by row."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qtide.malleable.distributed import Distributed
from qtide.malleable.layout import Rows


@dataclass(frozen=True)
class Saved:
    """One version in a folder of its own; it counts once its manifest is there."""

    folder: Path
    version: int

    @property
    def path(self) -> Path:
        """Where this version is."""
        return self.folder / f"{self.version}"

    def write_rows(self, name: str, array: Distributed) -> None:
        """Write this rank's rows to where they belong in the whole."""
        width = _width(array)
        file = os.open(self.path / f"{name}.rows", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            at = 0
            for first, count in _runs(array.rows):
                data = np.ascontiguousarray(array.local[at : at + count]).tobytes()
                _write(file, data, int(first) * width)
                at += count
            os.fsync(file)
        finally:
            os.close(file)

    def read_rows(self, name: str, array: Distributed, rank: int, size: int) -> None:
        """Give a rank its rows again."""
        file = self.path / f"{name}.rows"
        whole = np.memmap(file, array.dtype, "r", shape=array.shape)
        array.place(rank, size, np.array(whole[array.layout.owned(rank, size)]))

    def write_manifest(self, content: Any) -> None:
        """From now on, this version counts."""
        new = self.path / "manifest.new"
        new.write_bytes(pickle.dumps(content))
        new.replace(self.path / "manifest")

    def read_manifest(self) -> Any:
        """The replicated state, and which arrays there are."""
        return pickle.loads((self.path / "manifest").read_bytes())

    def remove(self) -> None:
        """Make room: a later version counts."""
        for file in self.path.iterdir() if self.path.is_dir() else ():
            file.unlink()
        if self.path.is_dir():
            self.path.rmdir()


def _width(array: Distributed) -> int:
    return int(array.dtype.itemsize * np.prod(array.shape[1:], dtype=np.int64))


def _runs(rows: Rows) -> list[tuple[int, int]]:
    """Stretches of successive rows: the first, and how many."""
    if not len(rows):
        return []
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    parts = np.split(rows, breaks)
    return [(int(part[0]), len(part)) for part in parts]


def _write(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, offset)
        view, offset = view[done:], offset + done
