"""Prospects: when the QPU and when a task in its place should begin and end; whichever is better.

Without a patience of the user's, it is whichever should end first. A job that waits for the QPU in
vain turns to the task once it has waited for as long as the task would have taken: so, whatever the
forecasts were worth, it loses no more time than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from qtide.programs.choice import Choice

FREE = 1.0
"""Seconds of waiting up to which a QPU counts as free."""


@dataclass(frozen=True)
class Prospects:
    """What is expected of a payload and of its classical equivalent, in seconds from now."""

    wait: float
    """Until the QPU begins; inf if nobody can say,"""
    busy: float
    """and how long it takes then."""
    lead: float
    """Until the task begins,"""
    work: float | None
    """and how long it takes then; None if it never ran."""

    def choice(self, patience: float | None) -> Choice:
        """The QPU or the task, by the user's patience or by what should end first."""
        if self.wait == inf:
            return Choice("task", "nobody can say when the QPU is back")
        if patience is not None:
            return self._by_patience(patience)
        if self.work is None:
            return self._by_what_is_free()
        return self._by_end(self.lead + self.work)

    def _by_patience(self, patience: float) -> Choice:
        said = f"the QPU should begin in {self.wait:.1f} s, and may in {patience:g} s"
        if self.wait <= patience:
            return Choice("qpu", said, patience)
        return Choice("task", said)

    def _by_what_is_free(self) -> Choice:
        """So that it will be known how long the task takes, where that matters."""
        said = f"the QPU should begin in {self.wait:.1f} s; how long the task takes is not known"
        return Choice("qpu" if self.wait <= FREE else "task", said)

    def _by_end(self, task: float) -> Choice:
        qpu = self.wait + self.busy
        said = f"the QPU should end in {qpu:.1f} s, the task in {task:.1f} s"
        return Choice("qpu", said, max(FREE, task)) if qpu <= task else Choice("task", said)
