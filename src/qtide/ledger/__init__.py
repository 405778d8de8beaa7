"""What was held and what was busy, from when to when. All metrics and pictures come from here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from qtide.ledger.invariant import check
from qtide.ledger.ledger import Interval, Ledger, Span, intervals, read
from qtide.ledger.metrics import JobTime, Metrics, measure
from qtide.ledger.panel import Panel

if TYPE_CHECKING:
    from qtide.ledger.report import Group, Report, write_report
    from qtide.ledger.table import Row, plain_rows, rich_table
    from qtide.ledger.timeline import draw, save

__all__ = [
    "Group",
    "Interval",
    "JobTime",
    "Ledger",
    "Metrics",
    "Panel",
    "Report",
    "Row",
    "Span",
    "check",
    "draw",
    "intervals",
    "measure",
    "plain_rows",
    "read",
    "rich_table",
    "save",
    "write_report",
]

# Pictures and tables are loaded when they are asked for: matplotlib and rich are heavy.
_LATER = {
    "report": ("Group", "Report", "write_report"),
    "table": ("Row", "plain_rows", "rich_table"),
    "timeline": ("draw", "save"),
}


def __getattr__(name: str) -> object:
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
