"""A run's log: what its tasks print, each line with the time, node and task.

The file is opened only to append lines, so a task that prints nothing costs nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

MOST = 8 * 2**20
"""Size in bytes at which a new log begins; one earlier log is kept."""


class LogLine(NamedTuple):
    """One line. `task` is the phase's key and the task's place in it, such as `3/0`."""

    time: str
    node: str
    task: str
    function: str
    text: str

    @staticmethod
    def parse(line: str) -> LogLine:
        """Parse a line of the file; a line by an earlier version is only text."""
        fields = line.split("\t", 4)
        return (
            LogLine(*fields)
            if len(fields) == len(LogLine._fields)
            else LogLine("", "", "", "", line)
        )


class Log:
    """A file of log lines with tab-separated fields."""

    def __init__(self, path: Path, stamp: Callable[[], str] | None = None) -> None:
        self.path = path
        self._stamp = stamp or time_of_day

    def write(self, node: str, text: str, task: str = "-", function: str = "-") -> None:
        """Append lines; errors such as a full disk do not end the run."""
        before = "\t".join((self._stamp(), node, task, function.replace("\t", " "), ""))
        lines = [f"{before}{_shown(line)}\n" for line in text.removesuffix("\n").split("\n")]
        with suppress(OSError):
            self._append("".join(lines).encode(errors="replace"))

    def _append(self, data: bytes) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, data)
            full = os.fstat(file).st_size > MOST
        finally:
            os.close(file)
        if full:
            self.path.replace(earlier(self.path))


def earlier(path: Path) -> Path:
    """Path of the earlier, full log."""
    return path.with_name(f"{path.name}.1")


def lines(path: Path) -> Iterator[LogLine]:
    """Yield all existing lines, oldest first."""
    for file in (earlier(path), path):
        with suppress(FileNotFoundError), file.open(errors="replace", newline="\n") as opened:
            yield from _whole(opened)


def follow(path: Path, over: Callable[[], bool], pause: float = 0.2) -> Iterator[LogLine]:
    """Yield existing and future lines until the run is over."""
    with suppress(FileNotFoundError), earlier(path).open(errors="replace", newline="\n") as opened:
        yield from _whole(opened)
    ended = False
    while not ended:
        ended = over()
        with suppress(FileNotFoundError), path.open(errors="replace", newline="\n") as opened:
            yield from _whole(opened)
            while not ended and _same(opened, path):
                time.sleep(pause)
                ended = over()  # ask first, so that everything written before is still read
                yield from _whole(opened)
        if not ended:
            time.sleep(pause)


def _whole(opened: IO[str]) -> Iterator[LogLine]:
    """Yield complete lines; leave one that is still being written for the next call."""
    while True:
        place, line = opened.tell(), opened.readline()
        if not line.endswith("\n"):
            opened.seek(place)
            return
        yield LogLine.parse(line[:-1])


def _same(opened: IO[str], path: Path) -> bool:
    """Whether a file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False


def time_of_day() -> str:
    """Local time to the millisecond."""
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(now))}.{int(now % 1 * 1000):03}"


def _shown(line: str) -> str:
    """A line as a terminal would finally show it: only the last state of a progress bar."""
    return line.rstrip("\r").rpartition("\r")[2]


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that can change what a terminal shows: all but tabs and line feeds."""


def printable(text: str) -> str:
    """Replace control characters, so that a terminal shows the text without obeying it."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
