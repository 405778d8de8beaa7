"""The aftermath of a driver that was killed: when what it held went back, as its cluster knows.

The driver itself can no longer write that. If the cluster cannot say it either, the spans stay
open-ended, and figures are at least what they are.
"""

from __future__ import annotations

import os
from contextlib import suppress

from qtide.clusters.kind import CLUSTERS
from qtide.errors import QtideError
from qtide.ledger.ledger import Event, append, left_open, read_events
from qtide.runs.folder import RunFolder
from qtide.system.files import Locked, lock


def settle(run: RunFolder) -> None:
    """Close what a dead driver left open in the ledger, as far as it is known when that ended."""
    with suppress(OSError, QtideError, Locked):
        opened = _opened(run)
        if opened and run.state != "running":
            ends = _ends(run, opened)
            if ends:
                _close(run, opened, ends)


def _opened(run: RunFolder) -> dict[int, Event]:
    """What was held in a job of the cluster, which the label names."""
    if not run.ledger.exists():
        return {}
    found = left_open(read_events(run.ledger))
    return {
        number: event
        for number, event in found.items()
        if event["what"] == "held" and event.get("label", "").isdecimal()
    }


def _ends(run: RunFolder, opened: dict[int, Event]) -> dict[int, float]:
    """When each span ended, on the run's clock."""
    spec = run.spec
    kind = CLUSTERS.load(spec.cluster.partition(":")[0])
    jobs = {int(event["label"]) for event in opened.values()}
    known = kind.ends(jobs, run.created)
    return {
        number: max(event["t"], known[int(event["label"])] / spec.time_scale)
        for number, event in opened.items()
        if int(event["label"]) in known
    }


def _close(run: RunFolder, opened: dict[int, Event], ends: dict[int, float]) -> None:
    """Write it, unless another driver has taken over meanwhile."""
    file = os.open(run.journal, os.O_RDONLY)
    try:
        lock(file)
        if _opened(run) == opened:
            append(run.ledger, ({"t": end, "end": number} for number, end in ends.items()))
    finally:
        os.close(file)
