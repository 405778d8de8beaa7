"""Phases as they are run: a payload that has a classical equivalent is a choice between two.

Whoever drives a program or a script hands its phases in here. The ledger shows what was chosen as
what it is: the task in place of a payload is a classical phase.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from qtide.client.client import ServiceFailed
from qtide.errors import NotEnoughNodes, PhaseError
from qtide.ledger.ledger import Ledger
from qtide.programs.choice import Choice, Choices
from qtide.programs.phase import Classical, Phase, Quantum, Task


class Performer(Protocol):
    """What actually runs phases: a strategy."""

    async def perform(self, phase: Phase, key: str) -> Any:
        """Run the tasks of a phase on nodes, or its payload on the QPU."""

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> Choice:
        """Whether the QPU or the task should run."""


class Candidates:
    """Runs the phases of one job, and keeps what was chosen."""

    def __init__(self, performer: Performer, ledger: Ledger, choices: Choices) -> None:
        self._performer = performer
        self._ledger = ledger
        self._choices = choices

    async def perform(self, phase: Phase, key: str) -> Any:
        """The result of a phase: that of the QPU or, where that was chosen, of the task."""
        if isinstance(phase, Quantum) and phase.otherwise is not None:
            return await self._either(phase, phase.otherwise, key)
        return await self._perform(phase, key, phase.label)

    async def _either(self, phase: Quantum, otherwise: Task[Any], key: str) -> Any:
        choice = self._choices.find(key)
        if choice is None:
            choice = self._keep(phase, key, await self._performer.choose(phase, otherwise, key))
        if choice.chosen == "qpu":
            patient = replace(phase, patience=choice.patience)
            patient.use()
            try:
                return await self._perform(patient, key, phase.label)
            except (PhaseError, NotEnoughNodes, ServiceFailed) as error:
                self._keep(phase, key, Choice("task", str(error)))
        label = f"{otherwise.name} instead of {phase.label}"
        return (await self._perform(Classical((otherwise,)), key, label))[0]

    async def _perform(self, phase: Phase, key: str, label: str) -> Any:
        with self._ledger.span("phase", phase.kind, label, key):
            return await self._performer.perform(phase, key)

    def _keep(self, phase: Quantum, key: str, choice: Choice) -> Choice:
        """Before anything of it is begun."""
        self._choices.keep(key, f"quantum {phase.label}", choice)
        self._ledger.explain(f"chose the {choice.chosen}", f"phase/{key}", choice.why)
        return choice
