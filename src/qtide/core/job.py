"""A job: what asks for nodes and QPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qtide.core.ledger import Ledger
from qtide.core.log import Log
from qtide.core.values import Values

MOST = 1000
"""The most modules that are remembered, whatever a program makes up."""
FAILURES = 2
"""After so many agents that died of it or did not end it, there is no preparation any more."""


class Imported(NamedTuple):
    """What a task had to import: modules that can be imported beforehand, and the time for all."""

    modules: Mapping[str, float] = {}
    seconds: float = 0.0

    def by(self, counted: Callable[[float], float]) -> dict[str, float]:
        """The modules with their seconds by another clock."""
        return {name: counted(seconds) for name, seconds in self.modules.items()}


NOTHING = Imported()


class Preparation:
    """The modules of one program with the seconds that each took, and how long a start takes."""

    def __init__(
        self, modules: Mapping[str, float] | None = None, seconds: float | None = None
    ) -> None:
        self._modules = dict(modules or {})
        self._seconds = seconds
        self._learnt_since = 0.0
        self._failures = 0

    @property
    def modules(self) -> list[str]:
        """What the next node to start imports, in the order in which tasks did."""
        return list(self._modules)

    @property
    def seconds(self) -> float | None:
        """How long the next start should take, from the grant to full speed; None if unknown."""
        return None if self._seconds is None else self._seconds + self._learnt_since

    def learn(self, imported: Mapping[str, float]) -> None:
        """A task had to import these, and it took so many seconds each."""
        for name, seconds in imported.items():
            if name not in self._modules and self._failures < FAILURES:
                if len(self._modules) >= MOST:
                    return
                self._modules[name] = seconds
                self._learnt_since += seconds

    def started(self, seconds: float) -> None:
        """A node could work so long after its grant, with the present modules."""
        self._seconds, self._learnt_since = seconds, 0.0

    def failed(self) -> None:
        """An agent died of it or hung: the next start goes without, until a task imports it all."""
        if self._modules:  # nodes that start together fail together, and count once
            self._modules.clear()
            self._failures += 1

    def scaled(self, factor: float) -> Preparation:
        """The same by a clock on which a second of this one takes `factor` seconds."""
        modules = {name: factor * seconds for name, seconds in self._modules.items()}
        return Preparation(modules, None if self.seconds is None else factor * self.seconds)

    def elsewhere(self) -> Preparation:
        """What holds for every cluster: the modules, not how long a start takes."""
        return Preparation(self._modules)

    def as_json(self) -> dict[str, Any]:
        """To be read by a later run of the same program."""
        return {"modules": self._modules, "seconds": self.seconds}

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> Preparation:
        """Back from JSON."""
        modules = {str(name): float(seconds) for name, seconds in entry["modules"].items()}
        seconds = entry["seconds"]
        return Preparation(modules, None if seconds is None else float(seconds))


@dataclass(frozen=True)
class JobContext:
    """One run: its ledger, its values, its seed, what its nodes prepare, and what they print."""

    name: str
    ledger: Ledger
    values: Values
    seed: int = 0
    preparation: Preparation = field(default_factory=Preparation)
    log: Log | None = None
