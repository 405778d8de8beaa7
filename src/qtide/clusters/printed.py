"""What a task prints that is called in the driver's own process: it goes to the run's log."""

from __future__ import annotations

import sys
from io import BytesIO, TextIOWrapper
from typing import Any

from qtide.jobs.log import MOST, Log


class Printed(TextIOWrapper):
    """Stands for stdout and stderr during one task at a time."""

    def __init__(self) -> None:
        self._bytes = BytesIO()
        self.in_use = False
        super().__init__(self._bytes, encoding="utf-8", errors="replace", write_through=True)

    def write(self, text: str, /) -> int:
        """Keep it; a logger that was set up in a task may also write between tasks."""
        if not self.in_use:
            return sys.stderr.write(text)
        return super().write(text) if self._bytes.tell() < MOST else len(text)

    def fileno(self) -> int:
        """For processes that the task starts: they have no log."""
        return sys.__stderr__.fileno() if sys.__stderr__ else 2

    def take(self) -> str:
        """What was printed since the last time."""
        if not self._bytes.tell():
            return ""
        text = self._bytes.getvalue().decode(errors="replace")
        self._bytes.seek(0)
        self._bytes.truncate()
        return text


_unused: list[Printed] = []
"""Used again, since creating one takes longer than all the rest of a task in virtual time."""


class logged:  # noqa: N801 - a context manager; a generator would take twice as long
    """Within, what this process prints goes to a log."""

    def __init__(self, log: Log | None, node: str, task: str, function: str) -> None:
        self._log = log
        self._from = (node, task, function)

    def __enter__(self) -> None:
        if self._log is not None:
            self._usual = sys.stdout, sys.stderr
            self._printed = _unused.pop() if _unused else Printed()
            self._printed.in_use = True
            sys.stdout = sys.stderr = self._printed

    def __exit__(self, *_: Any) -> None:
        if self._log is not None:
            sys.stdout, sys.stderr = self._usual
            self._printed.in_use = False
            text = self._printed.take()
            _unused.append(self._printed)
            if text:
                node, *place = self._from
                self._log.write(node, text, *place)
