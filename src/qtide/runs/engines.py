"""Workflow engines: programs that run the phases of a run in place of qtide's own driver."""

from __future__ import annotations

from typing import Protocol

from qtide.plugins import Plugins
from qtide.runs.driver import Outcome, Tell
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec


class Engine(Protocol):
    """What qtide asks of an engine."""

    def check(self, spec: Spec) -> None:
        """Refuse what it cannot run, with a sentence."""

    def drive(self, run: RunFolder, tell: Tell) -> Outcome:
        """Execute a run to its end; however it ends, what it held is given back."""


ENGINES: Plugins[type[Engine]] = Plugins("qtide.engines", "workflow engine")


def engine_of(spec: Spec) -> Engine | None:
    """The engine that a run names; None if qtide drives it."""
    name = spec.options.get("engine")
    return ENGINES.load(name)() if name else None
