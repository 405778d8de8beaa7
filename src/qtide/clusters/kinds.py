"""The kinds of clusters that need nothing but this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from qtide.clusters.kind import ClusterKind
from qtide.options import Option


def _bytes(word: str) -> int:
    return int(word) * 2**20


@dataclass(frozen=True)
class LocalOptions:
    """What each node may use of this machine."""

    memory: Annotated[int | None, Option("Memory that a node may use.", _bytes, "MEGABYTES")] = None
    cores: Annotated[int | None, Option("Cores that a node may use.")] = None


class LocalKind(ClusterKind):
    """Processes of this machine."""

    summary = "processes of this machine, local:4 for four nodes"
    Options = LocalOptions


class SimulatedKind(ClusterKind):
    """Virtual time."""

    summary = "virtual time, simulated:4 for four nodes"
