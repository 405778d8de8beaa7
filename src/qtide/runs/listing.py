"""The runs there are, for Python: all of them, and one to be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qtide.runs.action import driven
from qtide.runs.folder import RunFolder
from qtide.runs.options import Options
from qtide.runs.run import Run


def runs(folder: str | Path | None = None) -> list[Run[Any]]:
    """All runs in the folder of runs, the newest last, as `qtide list --all` lists them."""
    return [Run(each) for each in newest_last(Options("list", {"runs": folder}).runs)]


def newest_last(folder: Path) -> list[RunFolder]:
    """All runs in a folder, in the order in which they were created."""
    return sorted(RunFolder.all(folder), key=lambda run: (run.created, run.name))


def resume(run: str | Path | Run[Any] = "last", *, runs: str | Path | None = None) -> Run[Any]:
    """Go on with a run that failed, was interrupted or was killed, as `qtide resume` does.

    It is named by its name or a prefix of it, its folder, or `last`. Finished phases are kept.
    """
    if isinstance(run, Run):
        run = run.folder
    return driven(RunFolder.find(Options("resume", {"runs": runs}).runs, str(run)))
