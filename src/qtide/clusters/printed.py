"""What a task prints that is called in the driver's own process: it goes to the run's log."""

from __future__ import annotations

import sys
from io import BytesIO, TextIOWrapper
from typing import Any

from qtide.jobs.log import MOST, Log


class Printed(TextIOWrapper):
    """Stands for stdout and stderr during one task."""

    def __init__(self) -> None:
        self._bytes = BytesIO()
        self._over = False
        super().__init__(self._bytes, encoding="utf-8", errors="replace", write_through=True)

    def write(self, text: str, /) -> int:
        """Keep it; a logger that was set up in an earlier task writes to the present one."""
        if self._over:
            return sys.stderr.write(text)
        return super().write(text) if self._bytes.tell() < MOST else len(text)

    def fileno(self) -> int:
        """For processes that the task starts: they have no log."""
        return sys.__stderr__.fileno() if sys.__stderr__ else 2

    def end(self) -> str:
        """What was printed."""
        self._over = True
        return self._bytes.getvalue().decode(errors="replace")


class logged:  # noqa: N801 - a context manager; a generator would take twice as long
    """Within, what this process prints goes to a log."""

    def __init__(self, log: Log | None, node: str, task: str, function: str) -> None:
        self._log = log
        self._from = (node, task, function)

    def __enter__(self) -> None:
        if self._log is not None:
            self._usual = sys.stdout, sys.stderr
            sys.stdout = sys.stderr = self._printed = Printed()

    def __exit__(self, *_: Any) -> None:
        if self._log is not None:
            sys.stdout, sys.stderr = self._usual
            if text := self._printed.end():
                node, *place = self._from
                self._log.write(node, text, *place)
