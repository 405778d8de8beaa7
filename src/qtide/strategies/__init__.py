"""Strategies decide which nodes and which lease are held when. One short file each."""

from qtide.errors import UsageError
from qtide.strategies.elastic import Elastic
from qtide.strategies.malleable import Malleable
from qtide.strategies.split import Split
from qtide.strategies.static import Static
from qtide.strategies.strategy import Site, Strategy, Terms
from qtide.strategies.workflow import Workflow

STRATEGIES: dict[str, type[Strategy]] = {
    "static": Static,
    "malleable": Malleable,
    "workflow": Workflow,
    "split": Split,
    "elastic": Elastic,
}

__all__ = ["STRATEGIES", "Site", "Strategy", "Terms", "strategy"]


def strategy(name: str) -> type[Strategy]:
    """The strategy of that name."""
    try:
        return STRATEGIES[name]
    except KeyError:
        known = ", ".join(STRATEGIES)
        raise UsageError(f"there is no strategy {name!r}; there are: {known}") from None
