"""A panel: what one strategy did, as tables and pictures show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qtide.ledger.ledger import Interval
from qtide.ledger.metrics import Metrics
from qtide.ledger.notes import Note


@dataclass(frozen=True, slots=True)
class Panel:
    """One strategy: its jobs in the order of their colours, and what their ledgers have."""

    strategy: str
    jobs: tuple[str, ...]
    intervals: Sequence[Interval]
    metrics: Metrics
    notes: Sequence[Note] = ()
