"""Strategies that an adviser chooses when a run starts, by what is known of the program and site.

Advisers are plug-ins: who names one in place of a strategy gets what it advises, and is told why.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from qtide.plugins import Plugins
from qtide.runs.spec import Spec


@dataclass(frozen=True)
class Advised:
    """A strategy, and why it."""

    strategy: str
    why: str


Adviser = Callable[[Spec, Path], Advised]
"""Gets the run as it was asked for, and the folder of the runs before."""

ADVISERS: Plugins[Adviser] = Plugins("qtide.advisers", "adviser")


def decided(spec: Spec, runs: Path) -> Spec:
    """The run with a strategy; if an adviser has chosen it, says which and why."""
    if spec.strategy not in ADVISERS.names():
        return spec
    chosen = ADVISERS.load(spec.strategy)(spec, runs)
    print(f"strategy {chosen.strategy}: {chosen.why}", file=sys.stderr)  # noqa: T201 - for users
    return replace(spec, strategy=chosen.strategy)
