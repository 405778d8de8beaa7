"""What a run learnt about the start of its nodes, kept in its folder for later runs of the program.

So a run knows from its first round what nodes have to import, and how long they take to start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from qtide.errors import QtideError
from qtide.jobs.preparation import Preparation
from qtide.runs.folder import RunFolder
from qtide.runs.site import is_virtual
from qtide.runs.spec import Spec
from qtide.system.files import write_whole

NAME = "preparation.json"
LOOKED_AT = 100
"""How many other runs are looked at, the newest first."""


def recall(run: RunFolder) -> Preparation:
    """What the run itself, or else the newest one beside it of the same program, has learnt."""
    spec = run.spec
    if is_virtual(spec):
        return Preparation()
    for other in (run, *islice(_beside(run), LOOKED_AT)):
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, QtideError):
            if other.spec.program == spec.program:
                found = Preparation.from_json(json.loads((other.path / NAME).read_text()))
                known = found if _kind(other.spec) == _kind(spec) else found.elsewhere()
                return known.scaled(1 / spec.time_scale)
    return Preparation()


def remember(run: RunFolder, preparation: Preparation) -> None:
    """Keep it; no run fails because that is not possible."""
    if not is_virtual(run.spec) and preparation.seconds is not None:
        entry = preparation.scaled(run.spec.time_scale).as_json()
        with suppress(OSError):
            write_whole(run.path / NAME, (json.dumps(entry, indent=2) + "\n").encode())


def hand_on(run: RunFolder, others: list[RunFolder]) -> None:
    """Let other runs begin with what a run has learnt, each with the same."""
    with suppress(OSError):
        data = (run.path / NAME).read_bytes()
        for other in others:
            write_whole(other.path / NAME, data)


def _beside(run: RunFolder) -> Iterator[RunFolder]:
    """The runs in the same folder that have learnt something, the newest first."""
    files = run.path.parent.glob(f"*/{NAME}")
    for file in sorted(files, key=_written, reverse=True):
        yield RunFolder(file.parent)


def _kind(spec: Spec) -> str:
    return spec.cluster.partition(":")[0]


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0
