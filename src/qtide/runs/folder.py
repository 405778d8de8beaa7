"""A run's folder: its description, journal, ledger, values and result, each a file one can read."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from qtide.errors import UsageError
from qtide.jobs.values import Values
from qtide.ledger.ledger import Interval, read
from qtide.runs.presence import Presence
from qtide.runs.spec import Spec

State = Literal["new", "running", "done", "failed", "cancelled", "interrupted"]


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    @staticmethod
    def create(root: Path, name: str, spec: Spec) -> RunFolder:
        """A new folder; a taken name gets a number."""
        try:
            root.mkdir(parents=True, exist_ok=True)
            path = _unused(root, name)
            path.mkdir()
            spec.write(path / "run.json")
        except OSError as error:
            raise UsageError(
                f"no run can be kept in {root} ({error.strerror}); name another folder with --runs"
            ) from None
        return RunFolder(path)

    @staticmethod
    def find(root: Path, name: str) -> RunFolder:
        """The run of that name below `root`, or at that path; `last` is the newest."""
        if name == "last":
            runs = sorted(RunFolder.all(root), key=lambda run: run.created)
            if not runs:
                raise UsageError(f"there is no run in {root} yet")
            return runs[-1]
        for path in (root / name, Path(name)):
            if (path / "run.json").is_file():
                return RunFolder(path)
        raise UsageError(f"there is no run {name!r} in {root}; `qtide list` shows those there are")

    @staticmethod
    def all(root: Path) -> Iterator[RunFolder]:
        """All runs below `root`, also those that a comparison made."""
        for file in root.rglob("run.json"):
            yield RunFolder(file.parent)

    @property
    def spec(self) -> Spec:
        """What the run is."""
        return Spec.read(self.path / "run.json")

    @property
    def created(self) -> float:
        """When it was made, as a time of day."""
        return (self.path / "run.json").stat().st_mtime

    @property
    def journal(self) -> Path:
        """The file of finished phases."""
        return self.path / "journal"

    @property
    def ledger(self) -> Path:
        """The file of what was held and busy."""
        return self.path / "ledger.jsonl"

    @property
    def values(self) -> Values:
        """The folder of large results."""
        return Values(self.path / "values")

    @property
    def presence(self) -> Presence:
        """Where its driver is, and how to end it."""
        return Presence(self.path)

    @property
    def state(self) -> State:
        """How far it is."""
        if self._locked():
            return "running"
        end = self.end
        if end is not None:
            return "failed" if "error" in end else "done"
        if self.presence.unwanted:
            return "cancelled"
        return "interrupted" if self.journal.exists() else "new"

    @property
    def end(self) -> dict[str, Any] | None:
        """What `finish` wrote; None before."""
        file = self.path / "end.json"
        return json.loads(file.read_text()) if file.exists() else None

    def finish(self, end: dict[str, Any]) -> None:
        """Write how the run ended, whole or not at all."""
        draft = self.path / ".end.json"
        draft.write_text(json.dumps(end, indent=2) + "\n")
        draft.rename(self.path / "end.json")

    def unfinish(self) -> None:
        """Forget how an earlier driver ended."""
        (self.path / "end.json").unlink(missing_ok=True)

    def intervals(self) -> list[Interval]:
        """What the ledger has."""
        return read(self.ledger) if self.ledger.exists() else []

    def _locked(self) -> bool:
        """Whether a driver holds the journal."""
        if not self.journal.exists():
            return False
        file = os.open(self.journal, os.O_RDONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False


def stamp() -> str:
    """The time of day as part of a name."""
    return time.strftime("%Y%m%d-%H%M%S")


def _unused(root: Path, name: str) -> Path:
    path, number = root / name, 1
    while path.exists():
        number += 1
        path = root / f"{name}-{number}"
    return path
