"""A service of this user that is coming up: `qtide serve --demo &`, and a client right after it.

Python needs a moment until a service can say anything, so its process is looked for instead. Once
the service listens, it changes the short name that the kernel keeps of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

PROCESSES = Path("/proc")
SERVING = "qtide-serving"
"""The short name of a service that listens; the kernel keeps 15 characters."""
LIMIT = 15.0
"""Seconds that a service may take to come up."""
PAUSE = 0.05


def now_serving() -> None:
    """This process listens from now on, so nobody waits for it any more."""
    with suppress(OSError):  # no such file: clients then wait for their limit at most
        (PROCESSES / "self" / "comm").write_text(SERVING)


def await_service(found: Callable[[], Any]) -> None:
    """Return once the service is found, or none is coming up any more, which has a limit."""
    while not found() and list(_coming_up()):
        time.sleep(PAUSE)


def _coming_up() -> Iterator[int]:
    """The processes of this user that will be services."""
    for folder in PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            own = folder.stat().st_uid == os.geteuid()
            if own and _serves(folder) and not _listens(folder) and _age(folder) < LIMIT:
                yield int(folder.name)


def _serves(folder: Path) -> bool:
    """Whether its command is `qtide serve`."""
    words = (folder / "cmdline").read_bytes().split(b"\0")
    names = [word.rpartition(b"/")[2] for word in words]
    return b"qtide" in names and b"serve" in names[names.index(b"qtide") :]


def _listens(folder: Path) -> bool:
    return (folder / "comm").read_text().strip() == SERVING


def _age(folder: Path) -> float:
    """The seconds since a process was started."""
    words = (folder / "stat").read_text().rpartition(")")[2].split()
    began = int(words[19]) / os.sysconf("SC_CLK_TCK")
    return float((PROCESSES / "uptime").read_text().split()[0]) - began
