"""The processes of a box, found by what they are: no recorded pid is ever trusted.

A daemon is recognised by its program and by the box's folder on its command line, a job's task by
an environment that only a slurmstepd of this box sets.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from qtide.errors import QtideError

HELPERS = ("slurmstepd\n", "slurmscriptd\n")
"""Children of the daemons, which overwrite their command line and environment."""
CLIENTS = ("srun", "salloc")
DAEMONS = ("munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd")
PAUSE = 0.02  # seconds


def daemons(folder: Path) -> dict[int, str]:
    """The daemons of the box in `folder`: pid and name."""
    found = {pid: _words(pid, "cmdline") for pid in _pids()}
    inside = f"{folder}/"
    return {
        pid: Path(words[0]).name
        for pid, words in found.items()
        if words and Path(words[0]).name in DAEMONS and any(inside in word for word in words)
    }


def offspring(folder: Path, conf: Path) -> list[int]:
    """What the daemons of the box have started: their helpers, and the tasks of jobs.

    This includes clients whose parent has ended, but not those that a process still waits for.
    """
    return [
        pid
        for pid in _pids()
        if _is_helper(pid, folder) or _is_task(pid, conf) or _is_orphan(pid, conf)
    ]


def end(find: Callable[[], list[int]], limit: float) -> None:
    """Kill the processes that `find` returns until it returns none."""
    last = time.monotonic() + limit
    while pids := find():
        if time.monotonic() > last:
            raise QtideError(f"processes of the box do not end: {pids}; see what they wait for")
        for pid in pids:
            _kill(pid)
        time.sleep(PAUSE)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError:
        raise QtideError(f"process {pid} of the box is another user's; act as that user") from None


def _pids() -> Iterator[int]:
    own = os.getpid()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != own:
            yield int(entry.name)


def _words(pid: int, file: str) -> list[str]:
    """Empty for a process that is gone, a zombie, or another user's."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in text.split(b"\0") if word]


def _is_helper(pid: int, folder: Path) -> bool:
    """Helpers have the box's folder as their working directory."""
    entry = Path(f"/proc/{pid}")
    try:
        name, place = (entry / "comm").read_text(), (entry / "cwd").readlink()
    except OSError:
        return False
    return name in HELPERS and place.is_relative_to(folder)


def _is_task(pid: int, conf: Path) -> bool:
    """Only a slurmstepd tells a process which node it is on."""
    words = _words(pid, "environ")
    on_node = any(word.startswith("SLURMD_NODENAME=") for word in words)
    return on_node and f"SLURM_CONF={conf}" in words


def _is_orphan(pid: int, conf: Path) -> bool:
    """A client of the box whose parent has ended."""
    words = _words(pid, "cmdline")
    if not words or Path(words[0]).name not in CLIENTS:
        return False
    return f"SLURM_CONF={conf}" in _words(pid, "environ") and _parent(pid) == 1


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
