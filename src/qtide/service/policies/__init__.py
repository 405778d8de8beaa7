"""Policies: in which order the waiting tasks of a device get it. One file each."""

from __future__ import annotations

from collections.abc import Callable

from qtide.service.policies.fair import FairShare, Shares
from qtide.service.policies.ordered import Ordered, arrival, expected, urgency
from qtide.service.policies.policy import Policy

POLICIES: dict[str, Callable[[Shares], Policy]] = {
    "fair": FairShare,
    "fifo": lambda _: Ordered(arrival),
    "priority": lambda _: Ordered(urgency),
    "shortest": lambda _: Ordered(expected),
}

__all__ = ["POLICIES", "FairShare", "Policy", "Shares"]
