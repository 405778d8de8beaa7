"""The choice between a payload and its classical equivalent: what was chosen, and why.

It is made once, before the phase begins, and written to the journal at once: a run that is resumed
keeps it, whatever has become of the device since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from qtide.programs.journal import Record


def choice_of(key: str) -> str:
    """The place of a phase's choice in the journal; those of phases begin with a number."""
    return f"choice {key}"


@dataclass(frozen=True)
class Choice:
    """What runs, the QPU or the task, and the reason in words."""

    chosen: Literal["qpu", "task"]
    why: str
    patience: float | None = None
    """Seconds after which the task runs after all, if the QPU has not begun."""

    def as_json(self) -> dict[str, Any]:
        """As the journal keeps it."""
        return {"chosen": self.chosen, "why": self.why, "patience": self.patience}

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> Choice:
        """As the journal kept it."""
        return Choice(kept["chosen"], kept["why"], kept["patience"])


class Keeper(Protocol):
    """A journal, or what takes its place."""

    def find(self, key: str) -> Record | None:
        """The record at `key`."""

    def append(self, record: Record) -> None:
        """Write a record durably."""


class Choices:
    """The choices of a run, in its journal."""

    def __init__(self, journal: Keeper) -> None:
        self._journal = journal

    def find(self, key: str) -> Choice | None:
        """What was chosen for the phase at `key`, if anything was."""
        record = self._journal.find(choice_of(key))
        return None if record is None else Choice.from_json(record.outcome)

    def keep(self, key: str, asked: str, choice: Choice) -> None:
        """Write a choice durably; a later one for the same phase takes its place."""
        self._journal.append(Record(choice_of(key), asked, choice.as_json()))
