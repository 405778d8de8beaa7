"""Checkpoints of a malleable job: the state and all arrays, in a folder that all nodes share."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # mpi4py comes with it, and the helper of compiled programs has none
    from qtide.mpi.distributed import Distributed, Rows


@dataclass(frozen=True)
class Checkpoint:
    """One version, in its own folder; it is complete once its manifest exists."""

    folder: Path
    version: int

    @staticmethod
    def newest(folder: Path) -> Checkpoint | None:
        """Return the newest complete version in `folder`, if this user owns the folder."""
        owned = folder.is_dir() and folder.stat().st_uid == os.getuid()
        found = folder.glob("*/manifest") if owned else ()
        versions = [int(each.parent.name) for each in found if each.parent.name.isdecimal()]
        return Checkpoint(folder, max(versions)) if versions else None

    @property
    def path(self) -> Path:
        """The folder of this version."""
        return self.folder / f"{self.version}"

    def write_rows(self, name: str, array: Distributed) -> None:
        """Write this rank's rows at their offsets in the file of the whole array."""
        width = int(array.dtype.itemsize * np.prod(array.shape[1:], dtype=np.int64))
        file = os.open(self.path / f"{name}.rows", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            at = 0
            for first, count in _stretches(array.rows):
                view = memoryview(np.ascontiguousarray(array.local[at : at + count]).tobytes())
                offset = first * width
                while view:
                    done = os.pwrite(file, view, offset)
                    view, offset = view[done:], offset + done
                at += count
            os.fsync(file)
        finally:
            os.close(file)

    def read_rows(self, name: str, array: Distributed, rank: int, size: int) -> None:
        """Read a rank's rows back into the array."""
        file = self.path / f"{name}.rows"
        whole = np.memmap(file, array.dtype, "r", shape=array.shape)
        array.place(rank, size, np.array(whole[array.layout.owned(rank, size)]))

    def write_manifest(self, content: Any) -> None:
        """Complete this version: write its manifest, the state and the arrays' shapes."""
        new = self.path / "manifest.new"
        new.write_bytes(pickle.dumps(content))
        new.replace(self.path / "manifest")

    def read_manifest(self) -> Any:
        """Return what `write_manifest` wrote."""
        return pickle.loads((self.path / "manifest").read_bytes())

    def remove(self) -> None:
        """Delete this version."""
        rmtree(self.path, ignore_errors=True)


def _stretches(rows: Rows) -> list[tuple[int, int]]:
    """Return the runs of consecutive rows, each as its first row and length."""
    if not len(rows):
        return []
    parts = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return [(int(part[0]), len(part)) for part in parts]
