"""What was held and what was busy, from when to when. All metrics and pictures come from here."""

from qtide.ledger.ledger import Interval, Ledger, Span, intervals

__all__ = ["Interval", "Ledger", "Span", "intervals"]
