"""qtide shares scarce quantum processors among the jobs of an HPC cluster."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qtide.version import __version__ as __version__  # for `qtide.__version__`

if TYPE_CHECKING:
    from qtide.client.handle import qpu
    from qtide.clusters.pretend import pretend
    from qtide.errors import PhaseError, QtideError, TimedOut, UsageError
    from qtide.programs.phase import classical, quantum, task, together
    from qtide.programs.target import Target
    from qtide.runs.compared import Comparison, compare
    from qtide.runs.listing import resume, runs
    from qtide.runs.run import Run
    from qtide.runs.runnable import program
    from qtide.sessions.session import Session, session

__all__ = [
    "Comparison",
    "PhaseError",
    "QtideError",
    "Run",
    "Session",
    "Target",
    "TimedOut",
    "UsageError",
    "classical",
    "compare",
    "pretend",
    "program",
    "qpu",
    "quantum",
    "resume",
    "runs",
    "session",
    "task",
    "together",
]


_HOMES = {
    "Comparison": "qtide.runs.compared",
    "PhaseError": "qtide.errors",
    "QtideError": "qtide.errors",
    "Run": "qtide.runs.run",
    "Session": "qtide.sessions.session",
    "Target": "qtide.programs.target",
    "TimedOut": "qtide.errors",
    "UsageError": "qtide.errors",
    "compare": "qtide.runs.compared",
    "pretend": "qtide.clusters.pretend",
    "program": "qtide.runs.runnable",
    "qpu": "qtide.client.handle",
    "resume": "qtide.runs.listing",
    "session": "qtide.sessions.session",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: agents start without them."""
    if name not in __all__:
        raise AttributeError(f"module 'qtide' has no attribute {name!r}")
    if name == "runs":  # a package that can be called
        return import_module("qtide.runs")
    return getattr(import_module(_HOMES.get(name, "qtide.programs.phase")), name)
