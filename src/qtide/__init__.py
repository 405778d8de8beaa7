"""qtide shares scarce quantum processors among the jobs of an HPC cluster."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qtide.core.version import __version__ as __version__  # for `qtide.__version__`

if TYPE_CHECKING:
    from qtide.backends.client.handle import qpu
    from qtide.backends.client.target import Target
    from qtide.backends.clusters.pretend import pretend
    from qtide.core.errors import CommandFailed, PhaseError, QtideError, TimedOut, UsageError
    from qtide.interfaces.python.compared import Comparison, compare
    from qtide.interfaces.python.run import Run
    from qtide.interfaces.python.runnable import list_runs, program, resume
    from qtide.interfaces.sessions.session import Session, session
    from qtide.programs.command import CommandResult, command
    from qtide.programs.phase import classical, quantum, task, together

__all__ = [
    "CommandFailed",
    "CommandResult",
    "Comparison",
    "PhaseError",
    "QtideError",
    "Run",
    "Session",
    "Target",
    "TimedOut",
    "UsageError",
    "classical",
    "command",
    "compare",
    "list_runs",
    "pretend",
    "program",
    "qpu",
    "quantum",
    "resume",
    "session",
    "task",
    "together",
]


_HOMES = {
    "CommandFailed": "qtide.core.errors",
    "CommandResult": "qtide.programs.command",
    "command": "qtide.programs.command",
    "Comparison": "qtide.interfaces.python.compared",
    "PhaseError": "qtide.core.errors",
    "QtideError": "qtide.core.errors",
    "Run": "qtide.interfaces.python.run",
    "Session": "qtide.interfaces.sessions.session",
    "Target": "qtide.backends.client.target",
    "TimedOut": "qtide.core.errors",
    "UsageError": "qtide.core.errors",
    "compare": "qtide.interfaces.python.compared",
    "list_runs": "qtide.interfaces.python.runnable",
    "pretend": "qtide.backends.clusters.pretend",
    "program": "qtide.interfaces.python.runnable",
    "qpu": "qtide.backends.client.handle",
    "resume": "qtide.interfaces.python.runnable",
    "session": "qtide.interfaces.sessions.session",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: agents start without them."""
    if name not in __all__:
        raise AttributeError(f"module 'qtide' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "qtide.programs.phase")), name)
