"""qtide shares scarce quantum processors among the jobs of an HPC cluster."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qtide.version import __version__ as __version__  # for `qtide.__version__`

if TYPE_CHECKING:
    from qtide.client.handle import qpu
    from qtide.clusters.pretend import pretend
    from qtide.errors import PhaseError, TimedOut
    from qtide.programs.phase import classical, quantum, task, together
    from qtide.programs.program import program
    from qtide.programs.target import Target

__all__ = [
    "PhaseError",
    "Target",
    "TimedOut",
    "classical",
    "pretend",
    "program",
    "qpu",
    "quantum",
    "task",
    "together",
]


_HOMES = {
    "PhaseError": "qtide.errors",
    "Target": "qtide.programs.target",
    "TimedOut": "qtide.errors",
    "pretend": "qtide.clusters.pretend",
    "program": "qtide.programs.program",
    "qpu": "qtide.client.handle",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: agents start without them."""
    if name not in __all__:
        raise AttributeError(f"module 'qtide' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "qtide.programs.phase")), name)
