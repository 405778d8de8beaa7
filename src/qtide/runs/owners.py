"""The owner of an option: each kind of cluster and each strategy has its own options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qtide.clusters.kind import CLUSTERS
from qtide.errors import UsageError
from qtide.options import Declared, declared
from qtide.plugins import Plugins
from qtide.runs.advised import ADVISERS
from qtide.strategies.strategy import STRATEGIES

REGISTRIES: dict[str, Plugins[Any]] = {"cluster": CLUSTERS, "strategy": STRATEGIES}
"""The plug-ins that an option chooses from, by the option's name."""


@dataclass(frozen=True)
class Owner:
    """A plug-in that was chosen, or could be."""

    choice: str
    name: str
    summary: str
    options: tuple[Declared, ...]

    @property
    def words(self) -> str:
        """How it is chosen on the command line."""
        return f"--{self.choice} {self.name}"

    @property
    def heading(self) -> str:
        """The heading of its options: a title, and a line on what it is."""
        about = (
            f"\n{self.summary[0].upper()}{self.summary[1:].rstrip('.')}." if self.summary else ""
        )
        return f"Options of {self.words}{about}"


def owner(choice: str, name: str) -> Owner:
    """The plug-in with that name; UsageError lists those there are."""
    if choice == "strategy" and name in ADVISERS.names():
        return Owner(choice, name, "the strategy is chosen when the run starts", ())
    plugin = REGISTRIES[choice].load(name)
    return Owner(choice, name, plugin.summary, tuple(declared(plugin.Options)))


def others(chosen: list[Owner]) -> Iterator[Owner]:
    """All that were not chosen; one that cannot be loaded is left out."""
    taken = {(each.choice, each.name) for each in chosen}
    for choice, registry in REGISTRIES.items():
        for name in registry.names():
            if (choice, name) not in taken:
                try:
                    yield owner(choice, name)
                except UsageError:
                    continue
