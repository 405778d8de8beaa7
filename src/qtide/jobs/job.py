"""A job: what asks for nodes and QPUs."""

from __future__ import annotations

from dataclasses import dataclass, field

from qtide.jobs.log import Log
from qtide.jobs.preparation import Preparation
from qtide.jobs.values import Values
from qtide.ledger.ledger import Ledger


@dataclass(frozen=True)
class Job:
    """One run: its ledger, its values, its seed, what its nodes prepare, and what they print."""

    name: str
    ledger: Ledger
    values: Values
    seed: int = 0
    preparation: Preparation = field(default_factory=Preparation)
    log: Log | None = None
