"""What every policy offers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from qtide.service.task import Task


class Policy(Protocol):
    """The waiting tasks of one device, and which of them is next."""

    def add(self, task: Task) -> None:
        """Let a task wait."""

    def remove(self, task: Task) -> None:
        """Let it wait no longer."""

    def order(self, now: float) -> Iterator[Task]:
        """The tasks in the order in which they would run if nothing else were submitted."""
