"""Policies: in which order the waiting tasks of a device are run. One file each.

A policy is registered in the group `qtide.policies` as a callable that takes the `Shares`.
"""

from __future__ import annotations

from collections.abc import Callable

from qtide.plugins import Plugins
from qtide.service.policies.policy import Ahead, Policy
from qtide.service.policies.shares import Owner, Shares

POLICIES: Plugins[Callable[[Shares], Policy]] = Plugins("qtide.policies", "policy")

__all__ = ["POLICIES", "Ahead", "Owner", "Policy", "Shares"]
