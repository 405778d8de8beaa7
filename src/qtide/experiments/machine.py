"""When and on which machine something was measured."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

from qtide.core.version import __version__


def described() -> dict[str, Any]:
    """Return the date, the machine and its load, and the versions."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "load": round(os.getloadavg()[2], 1),
        "nice": os.nice(0),
        "python": platform.python_version(),
        "qtide": __version__,
    }


def sentence(made: dict[str, Any], command: str) -> str:
    """Say by which command, when and where numbers were made, from what `described` returned."""
    nice = made.get("nice", 0)
    before = f" (nice value {nice}, so before others' work)" if nice < 0 else ""
    return (
        f"Made by `{command}` on {made['date']}, on a machine with {made['machine']} and a load of "
        f"{made['load']:.1f}{before}, with Python {made['python']} and qtide {made['qtide']}."
    )
