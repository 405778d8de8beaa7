"""What every policy offers."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from qtide.service.task import Task


class Ahead(NamedTuple):
    """What should run before a task, if nothing else is submitted."""

    tasks: int
    seconds: float
    promised: float
    """Seconds of those among them that were promised a start."""


class Policy(Protocol):
    """The waiting tasks of one device, and which of them is next. No call looks at all of them."""

    def add(self, task: Task, now: float) -> None:
        """Let a task wait."""

    def remove(self, task: Task) -> None:
        """Let it wait no longer."""

    def first(self) -> Task:
        """The task that is next."""

    def ahead(self, task: Task) -> Ahead:
        """What is ahead of a waiting task."""

    def serve(self, task: Task, now: float) -> None:
        """A waiting task, mostly the first, goes to the device; it is removed afterwards."""

    def settle(self, task: Task, used: float, now: float) -> None:
        """A task has left the device, which it occupied for so many seconds."""
