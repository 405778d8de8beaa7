"""What can be chosen for a cut step: all that can be for a whole circuit, and a budget."""

from __future__ import annotations

from dataclasses import dataclass

from qtide.apps.colouring.cutting.plan import USUAL_BUDGET, Budget
from qtide.apps.colouring.qaoa.options import QaoaOptions


@dataclass(frozen=True)
class CutOptions(QaoaOptions):
    """The device says how many qubits a fragment may have."""

    budget: Budget = USUAL_BUDGET
