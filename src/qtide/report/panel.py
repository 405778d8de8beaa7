"""A panel: what one strategy did, as tables and pictures show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qtide.ledger.ledger import Interval
from qtide.ledger.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Panel:
    """One strategy: its jobs in the order of their colours, their intervals and their metrics."""

    strategy: str
    jobs: tuple[str, ...]
    intervals: Sequence[Interval]
    metrics: Metrics
