"""A job: whoever asks for nodes and QPUs."""

from __future__ import annotations

from dataclasses import dataclass

from qtide.ledger.ledger import Ledger
from qtide.programs.values import Values


@dataclass(frozen=True)
class Job:
    """One run on its resources: its ledger, the folder of its values, and its seed."""

    name: str
    ledger: Ledger
    values: Values
    seed: int = 0
