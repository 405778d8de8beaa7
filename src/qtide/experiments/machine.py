"""When and on which computer something was measured."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

from qtide.core.version import __version__

GB = 2**30
BUSY = 2
"""Load per core beyond which a measurement itself cannot be the reason."""


def described() -> dict[str, Any]:
    """Return the date, the computer and its load, and the versions."""
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB
    kind = ", ".join(filter(None, [_model(), platform.machine()]))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{cores} core{'s' if cores > 1 else ''} ({kind}), {memory:.0f} GiB of memory, "
        f"{platform.system()}",
        "load": round(os.getloadavg()[2], 1),
        "nice": os.nice(0),
        "python": platform.python_version(),
        "qtide": __version__,
    }


def _model() -> str:
    """Return the name of the processor, if Linux tells it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "")


def sentence(made: dict[str, Any], command: str) -> str:
    """Say by which command, when and where numbers were made, from what `described` returned."""
    return (
        f"Made by `{command}` on {made['date']}, on a computer with {made['machine']}, "
        f"Python {made['python']} and qtide {made['qtide']}. {_company(made)}"
    )


def _company(made: dict[str, Any]) -> str:
    """Say whether the computer had other work, which takes its cores and its disk."""
    load, cores = made["load"], int(made["machine"].split()[0])
    if load <= BUSY * cores:
        return f"Its load average was {load:.1f}."
    others = "programs of lower priority" if made.get("nice", 0) < 0 else "programs"
    return f"The computer was busy with other {others} as well (load average {load:.1f})."
