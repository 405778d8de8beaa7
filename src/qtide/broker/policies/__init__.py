"""Policies: in which order the waiting tasks of a device get it. One file each."""

from __future__ import annotations

from collections.abc import Callable

from qtide.broker.policies.fair import FairShare, Shares
from qtide.broker.policies.ordered import Ordered, arrival, expected, urgency
from qtide.broker.policies.policy import Policy

POLICIES: dict[str, Callable[[Shares], Policy]] = {
    "fair": FairShare,
    "fifo": lambda _: Ordered(arrival),
    "priority": lambda _: Ordered(urgency),
    "shortest": lambda _: Ordered(expected),
}

__all__ = ["POLICIES", "FairShare", "Policy", "Shares"]
