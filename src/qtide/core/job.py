"""A job, which requests nodes and QPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qtide.core.ledger import Ledger
from qtide.core.log import Log
from qtide.core.values import Values

MOST = 1000
"""Maximum number of modules to remember, whatever a program imports."""
FAILURES = 2
"""Number of failed preparations (the agent died or hung) after which none is tried again."""


class Imported(NamedTuple):
    """What a task had to import: modules that can be imported in advance, and the total time."""

    modules: Mapping[str, float] = {}
    seconds: float = 0.0

    def by(self, counted: Callable[[float], float]) -> dict[str, float]:
        """The modules with their seconds converted to another clock."""
        return {name: counted(seconds) for name, seconds in self.modules.items()}


NOTHING = Imported()


class Preparation:
    """A program's modules with their import times, and how long a node start takes."""

    def __init__(
        self, modules: Mapping[str, float] | None = None, seconds: float | None = None
    ) -> None:
        self._modules = dict(modules or {})
        self._seconds = seconds
        self._learnt_since = 0.0
        self._failures = 0

    @property
    def modules(self) -> list[str]:
        """Modules that the next node to start imports, in the order in which tasks did."""
        return list(self._modules)

    @property
    def seconds(self) -> float | None:
        """Expected seconds of the next start, from the grant to full speed; None if unknown."""
        return None if self._seconds is None else self._seconds + self._learnt_since

    def learn(self, imported: Mapping[str, float]) -> None:
        """Record modules that a task had to import, with their seconds."""
        for name, seconds in imported.items():
            if name not in self._modules and self._failures < FAILURES:
                if len(self._modules) >= MOST:
                    return
                self._modules[name] = seconds
                self._learnt_since += seconds

    def started(self, seconds: float) -> None:
        """Record the seconds from a node's grant until it could work, with the current modules."""
        self._seconds, self._learnt_since = seconds, 0.0

    def failed(self) -> None:
        """Drop all modules after an agent died of them or hung, until a task imports them again."""
        if self._modules:  # nodes that start together fail together and count once
            self._modules.clear()
            self._failures += 1

    def scaled(self, factor: float) -> Preparation:
        """Convert to a clock on which a second of this one takes `factor` seconds."""
        modules = {name: factor * seconds for name, seconds in self._modules.items()}
        return Preparation(modules, None if self.seconds is None else factor * self.seconds)

    def elsewhere(self) -> Preparation:
        """What applies to every cluster: the modules, but not the start time."""
        return Preparation(self._modules)

    def as_json(self) -> dict[str, Any]:
        """Convert to JSON for later runs of the program."""
        return {"modules": self._modules, "seconds": self.seconds}

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> Preparation:
        """Read from JSON."""
        modules = {str(name): float(seconds) for name, seconds in entry["modules"].items()}
        seconds = entry["seconds"]
        return Preparation(modules, None if seconds is None else float(seconds))


class CommandSettings(NamedTuple):
    """How a run starts commands, unless a command says otherwise; empty for the usual way."""

    modules: str = ""
    """Environment modules to load, such as `gcc/13 openmpi/5`."""
    wrapper: str = ""
    """Words before each command, such as `apptainer exec image.sif`."""
    launcher: str = ""
    """What starts the ranks of an MPI program, such as `mpiexec` or `srun --mpi=pmix`."""


NO_SETTINGS = CommandSettings()


@dataclass(frozen=True)
class JobContext:
    """One run: its ledger, values, seed, node preparation, log, and settings for commands."""

    name: str
    ledger: Ledger
    values: Values
    seed: int = 0
    preparation: Preparation = field(default_factory=Preparation)
    log: Log | None = None
    commands: CommandSettings = NO_SETTINGS
